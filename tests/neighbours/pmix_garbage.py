"""What no client of PMIx would send, to the server of the job that this rank belongs to, while the others use it:
half a greeting, noise, a huge length, a good greeting with noise behind it, many connections that say nothing.
Then, as everybody, a real client: argv[1:]."""
import os
import re
import socket
import struct
import sys

uri = os.environ["PMIX_SERVER_URI4"]
port = int(uri.rsplit(":", 1)[1])
space = os.environ["PMIX_NAMESPACE"]


def connect():
    s = socket.create_connection(("127.0.0.1", port), 5)
    s.settimeout(5)
    return s


def is_closed(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
    except socket.timeout:
        return False


def greeting(name, rank):
    body = b"native\0" + struct.pack("<IIII", 0, 8, os.geteuid(), os.getegid())
    body += b"\0" + name.encode() + b"\0" + struct.pack(">I", rank) + b"4.2.2\0v41\0\1hash\0\0"
    return struct.pack("<iIQ", -1, 0xFFFFFFFF, len(body)) + body


def main():
    assert re.fullmatch(r"hvd-[0-9a-f]{32}", space), space
    if os.environ["PMIX_RANK"] == "1":
        silent = [connect() for _ in range(50)]
        half = connect()
        half.send(greeting(space, 0)[:20])
        for bytes_ in (
            b"GET / HTTP/1.0\r\n\r\n" * 2,
            struct.pack("<iIQ", -1, -1 & 0xFFFFFFFF, 1 << 40),
            greeting("hvd-" + "0" * 32, 0),
        ):
            s = connect()
            s.send(bytes_)
            assert is_closed(s), bytes_[:40]
        for bytes_ in (greeting(space, 4000000), greeting(space, 0).replace(b"hash", b"hush"),
                       greeting(space, 0).replace(b"hash\0\0", b"hashes")):
            s = connect()
            s.send(bytes_)
            assert is_closed(s), bytes_
        s = connect()
        s.send(greeting(space, 0)[:-3] + os.urandom(5000))
        s.shutdown(socket.SHUT_WR)
        s.close()
        os.environ["HVD_TEST_OPEN"] = str(len(silent))
        for s in silent + [half]:
            s.set_inheritable(True)
    os.execv(sys.argv[1], sys.argv[1:])


main()
