#!/usr/bin/env python3
"""stranger.py WHAT...: what another user of a host may try against somebody's job, and against the managed agent.

  heavy KIND      gives the agent descriptors that take an hour to close (a TCP connection that lingers), and lets go of them itself.
                  KIND: asked (as the two of a request), more (beside them), unread (where the agent reads no further).
                  Prints "given" and stays until it is ended.
  reach UID       tries whatever UID has on this host: its unix sockets, the ports that it listens on, its processes, its files.
                  A line for each thing that answered or opened; nothing at all when nothing did.
  wait SECONDS PORT...   connections to those ports that say nothing, or a byte a second; prints how many were still open then
"""
import array, ctypes, os, select, socket, struct, sys, time

AGENT = "/run/hvd/agent.sock"
REQUEST = struct.pack("<IBBBB", 8, 1, 0, 0, 0) + bytes(12) + b"\x0a\x06\x08\x01\x12\x02zz"


# ---- descriptors that are hard to close --------------------------------------------------------------------------------------
def lingering(kept):
    """A connection whose peer does not read: close() of the last copy waits for an hour."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    server.bind(("127.0.0.1", 0))
    server.listen(1)
    client = socket.create_connection(server.getsockname())
    kept += [server, server.accept()[0]]
    client.setblocking(False)
    try:
        while True:
            client.send(bytes(65536))
    except BlockingIOError:
        pass
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600))
    return client


def heavy(kind):
    kept = []
    agent = socket.socket(socket.AF_UNIX)
    agent.connect(AGENT)
    given = [lingering(kept) for _ in range({"asked": 2, "more": 6, "unread": 2}[kind])]
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [s.fileno() for s in given]))]
    if kind == "unread":
        agent.send(struct.pack("<IBBBB", 8, 7, 7, 7, 7) + bytes(12))
        agent.sendmsg([b"behind"], ancillary)
    else:
        agent.sendmsg([REQUEST], ancillary)
    for s in given:
        s.close()
    print("given", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    {"heavy": heavy}[sys.argv[1]](*sys.argv[2:])
