#!/usr/bin/env python3
"""stranger.py WHAT...: what another user of a host may try against somebody's job, and against the managed agent.

  heavy KIND      gives the agent descriptors that take an hour to close (a TCP connection that lingers), and lets go of them itself.
                  KIND: asked (as the two of a request), more (beside them), unread (where the agent reads no further).
                  Prints "given" and stays until it is ended.
  reach UID       tries whatever UID has on this host: its unix sockets, the ports that it listens on, its processes, its files.
                  A line for each thing that answered or opened; nothing at all when nothing did. On stderr: the ports.
  hold UID NUMBER  makes so many connections, in five seconds, by turns to the agent, its metrics, and all that UID listens at on this host, says a
                  byte a second on each that is still open, and goes on until it is ended. Prints for each second and address
                  "ADDRESS MADE OPEN", and "made N" when all were made; MADE does not count those that were not let in.
  flood HOST LOW HIGH NUMBER   so many connections to those ports, as soon as somebody listens there, that stay open: every fourth says nothing,
                  a byte a second, a length of 4 GiB, or the first message of a link without the key. Prints "connected N", how many
                  there were, and goes on until it is ended.
  race PATH TRAP   makes PATH by turns a link to TRAP, a directory for all, a pipe, a file and nothing, by renaming, until it is ended. Prints "caught NAME" when
                  somebody made something in such a directory, or in TRAP.
  traps DIR OTHER  beside the jobs in DIR, what looks like one and changes all the time: a link to OTHER, a directory whose socket is a link to the
                  agent's, a pipe, silent, or says what would steer a terminal.
  replay LOW HIGH  on the host of somebody's links, as root: records what a host that has the key says to those ports while it proves that, says
                  the same on connections of its own as soon as it was said, and tells for each "replayed N bytes, answered M, closed|open".
"""
import array, ctypes, os, resource, socket, struct, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
AGENT = "/run/hvd/agent.sock"
HELLO = 120  # bytes of the first message of a link
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


# ---- whatever is somebody else's -----------------------------------------------------------------------------------------------
def attempt(what, action):
    try:
        got = action()
    except OSError:
        return
    if got:
        print(what, flush=True)


def talk(sock, address):
    """Does it say anything, or take more than it should, before it closes?"""
    with sock:
        sock.settimeout(1.5)
        sock.connect(address)
        sock.send(b"GET /global/0 HTTP/1.0\r\n\r\n")
        return sock.recv(1) != b""


def enter(address):
    """Everybody may connect to an abstract name; is the connection kept?"""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(address)
        if not address.startswith("\0"):
            return True
        sock.settimeout(1.5)
        try:
            return sock.recv(1) != b""
        except TimeoutError:
            return True


def sockets():
    with open("/proc/net/unix") as lines:
        names = {line.split()[-1] for line in lines if "hvd" in line or "worker" in line}
    names.discard(AGENT)
    for name in names:
        address = "\0" + name[1:] if name.startswith("@") else name
        attempt("socket " + name, lambda: enter(address))


def ports(uid):
    for table, family, host in ("tcp", socket.AF_INET, "127.0.0.1"), ("tcp6", socket.AF_INET6, "::1"):
        with open("/proc/net/" + table) as lines:
            rows = [line.split() for line in lines][1:]
        for row in rows:
            port = int(row[1].rsplit(":", 1)[1], 16)
            if row[3] == "0A" and int(row[7]) == uid:
                print("listens", port, file=sys.stderr, flush=True)
                attempt("port %d" % port, lambda: talk(socket.socket(family), (host, port)))


def processes(uid):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        base = "/proc/" + pid
        try:
            if os.stat(base).st_uid != uid or int(pid) == os.getpid():
                continue
        except OSError:
            continue
        for name in "environ", "maps", "mem", "auxv", "stack", "io":
            attempt("process %s: %s" % (pid, name), lambda: open(base + "/" + name, "rb") and True)
        for name in "cwd", "exe", "root":
            attempt("process %s: %s" % (pid, name), lambda: os.readlink(base + "/" + name))
        attempt("process %s: fd" % pid, lambda: [os.readlink(base + "/fd/" + f) for f in os.listdir(base + "/fd")])
        attempt("process %s: signals" % pid, lambda: os.kill(int(pid), 0) is None)
        attempt("process %s: pidfd_getfd" % pid, lambda: libc.syscall(438, os.pidfd_open(int(pid)), 1, 0) >= 0)
        if libc.ptrace(0x4206, int(pid), 0, 0) == 0:  # PTRACE_SEIZE
            print("process %s: ptrace" % pid, flush=True)


def files(uid):
    for top in "/tmp", "/run", "/dev/shm", "/var/tmp", "/dev/mqueue", "/sys/fs/cgroup":
        for base, directories, names in os.walk(top):
            directories[:] = [d for d in directories if os.path.join(base, d) != HERE]  # the test's own
            for name in directories + names:
                path = os.path.join(base, name)
                try:
                    if os.lstat(path).st_uid != uid:
                        continue
                except OSError:
                    continue
                attempt("writes " + path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)) is None)
                if not path.startswith("/sys"):
                    attempt("file " + path, lambda: os.listdir(path) is not None if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)) is None)


def reach(uid):
    sockets()
    ports(int(uid))
    processes(int(uid))
    files(int(uid))


def addresses(uid):
    found = [(socket.AF_UNIX, AGENT), (socket.AF_UNIX, os.path.dirname(AGENT) + "/metrics.sock")]
    with open("/proc/net/unix") as lines:
        found += [(socket.AF_UNIX, line.split()[-1]) for line in lines if "/hvd-%d/" % uid in line]
    with open("/proc/net/tcp") as lines:
        rows = [line.split() for line in lines][1:]
    return found + [(socket.AF_INET, ("127.0.0.1", int(r[1].split(":")[1], 16))) for r in rows if r[3] == "0A" and int(r[7]) == uid]


def hold(uid, number):
    number = int(number)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number + 100,) * 2)
    targets, kept, tried = addresses(int(uid)), {}, 0
    made = [0] * len(targets)
    began = said = time.monotonic()
    while True:
        now = time.monotonic()
        while tried < number and tried < (now - began) * number / 5:
            family, address = targets[tried % len(targets)]
            sock = socket.socket(family)
            sock.setblocking(False)
            try:
                sock.connect(address)
            except BlockingIOError:
                pass
            except OSError:
                sock.close()
            if sock.fileno() >= 0:
                kept[sock] = tried % len(targets)
                made[tried % len(targets)] += 1
            tried += 1
        if now - said >= 1:
            said = now
            for sock in list(kept):
                try:
                    sock.send(b"G")
                except BlockingIOError:
                    pass
                except OSError:
                    del kept[sock]
                    sock.close()
            for i, (_, address) in enumerate(targets):
                print(address if isinstance(address, str) else "port", made[i], sum(1 for k in kept.values() if k == i), flush=True)
            if tried == number:
                print("made", tried, flush=True)
        time.sleep(0.01)


# ---- names that change hands ---------------------------------------------------------------------------------------------------
def kinds(path, target):
    yield lambda: os.symlink(target, path)
    yield lambda: os.mkdir(path, 0o777)
    yield lambda: os.mkfifo(path, 0o666)
    yield lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))


def race(path, trap):
    os.umask(0)
    aside, rounds = path + ".aside", 0
    while True:
        for make in list(kinds(aside, trap)):
            for action in make, lambda: os.rename(aside, path), lambda: time.sleep(0.001 * (rounds % 7)), lambda: os.rename(path, aside):
                try:
                    action()
                except OSError:
                    pass
            for place in aside, path, trap:
                try:
                    if os.stat(place).st_uid == os.getuid():
                        for name in os.listdir(place):
                            print("caught", name, flush=True)
                except OSError:
                    pass
            for name in aside, path:
                for remove in os.unlink, os.rmdir:
                    try:
                        remove(name)
                    except OSError:
                        pass
            time.sleep(0.001 * (rounds % 40))
            rounds += 1
            if rounds == 20:
                print("racing", flush=True)


def traps(directory, other):
    os.chdir(directory)
    speaker, silent = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    os.makedirs("trap-2", 0o700, exist_ok=True)
    speaker.bind("trap-2/status")
    speaker.listen(100)
    speaker.setblocking(False)
    os.makedirs("trap-3", 0o700, exist_ok=True)
    silent.bind("trap-3/status")
    silent.listen(100)
    rounds = 0
    while True:
        for i, target in enumerate((AGENT, other, "/dev/zero", "/proc/self/mem")):
            try:
                os.mkdir("new", 0o700)
                os.symlink(target, "new/status")
                os.symlink(other, "link")
                for new, name in ("new", "trap-0"), ("link", "trap-1"):
                    if os.path.lexists(name):
                        os.rename(name, "old")
                    os.rename(new, name)
                    if os.path.islink("old"):
                        os.unlink("old")
                    elif os.path.lexists("old"):
                        os.unlink("old/status")
                        os.rmdir("old")
            except OSError:
                pass
        try:
            said = speaker.accept()[0]
            said.send(b"\x1b[2J\x1b]0;trapped\x07" + struct.pack("<I", 0xFFFFFFFF) + b"\x01" * 100)
            said.close()
        except OSError:
            pass
        rounds += 1
        if rounds == 20:
            print("trapping", flush=True)


# ---- from another host -----------------------------------------------------------------------------------------------------------
def flood(host, low, high, number):
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(number) + 100,) * 2)
    hello = b"HVDLINK\n" + struct.pack("<HBBIII", 2, 2, 0, 0, 1, 0) + bytes(32) + b"job".ljust(64, b"\0")
    kept, said = [], 0
    while True:
        for port in range(int(low), int(high) + 1):
            try:
                sock = socket.create_connection((host, port), 0.5)
            except OSError:
                continue
            kind = len(kept) % 4
            kept.append(sock if len(kept) < int(number) else None)
            try:
                sock.sendall([b"", b"H", b"\xff" * 1000, hello][kind])
            except OSError:
                pass
        if len(kept) > said:
            said = len(kept)
            print("connected", said, flush=True)
        else:
            time.sleep(0.005)


def replay(low, high):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    wire.settimeout(0.3)
    said = {}
    print("listening", flush=True)
    while True:
        try:
            packet = wire.recv(65536)
        except TimeoutError:
            packet = b""
        if len(packet) >= 40 and packet[9] == 6:
            at = (packet[0] & 15) * 4
            source, port, sequence = struct.unpack_from("!HHI", packet, at)
            payload = packet[at + (packet[at + 12] >> 4) * 4 : struct.unpack_from("!H", packet, 2)[0]]
            if int(low) <= port <= int(high) and payload:
                said.setdefault((packet[12:16], source, packet[16:20], port), {})[sequence] = payload
            continue
        for (_, _, host, port), pieces in said.items():
            answered, recorded = 0, b"".join(pieces[s] for s in sorted(pieces))
            try:
                sock = socket.create_connection((socket.inet_ntoa(host), port), 1)
                sock.settimeout(1)
                sock.sendall(recorded[:HELLO])
                answered, last = len(sock.recv(4096)), b"?"  # the challenge, as the other one had
                sock.sendall(recorded[HELLO:])
                while last:
                    last = sock.recv(4096)
                    answered += len(last)
                print("replayed", len(recorded), "bytes, answered %d," % answered, "closed", flush=True)
            except ConnectionRefusedError:
                pass
            except ConnectionResetError:
                print("replayed", len(recorded), "bytes, answered %d," % answered, "closed", flush=True)
            except OSError:
                print("replayed", len(recorded), "bytes, answered %d," % answered, "open", flush=True)
        said = {}


if __name__ == "__main__":
    {"heavy": heavy, "reach": reach, "hold": hold, "flood": flood, "replay": replay, "race": race, "traps": traps}[sys.argv[1]](*sys.argv[2:])
