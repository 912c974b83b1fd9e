# A program without libhvd: at each step rank 0 gets a number of every rank, and sends their sum. One rank does something else.
# plain.py KIND RANK DIRECTORY
import fcntl
import os
import socket
import subprocess
import sys
import threading
import time

kind, culprit, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
port_file = os.path.join(directory, kind + ".port")
lock_file = os.path.join(directory, kind + ".lock")


def connect():
    if rank == 0:
        server = socket.create_server(("127.0.0.1", 0))
        with open(port_file + ".new", "w") as out:
            out.write(str(server.getsockname()[1]))
        os.rename(port_file + ".new", port_file)
        return [server.accept()[0] for _ in range(size - 1)]
    while not os.path.exists(port_file):
        time.sleep(0.01)
    with open(port_file) as port:
        return [socket.create_connection(("127.0.0.1", int(port.read())))]


def exchange(peers):
    if rank == 0:
        for peer in peers:
            peer.recv(8)
        for peer in peers:
            peer.sendall(b"8 bytes.")
    else:
        peers[0].sendall(b"8 bytes.")
        peers[0].recv(8)


def child(command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, shell=True)


def go_astray(peers):
    if kind == "loop":
        while True:
            pass
    elif kind == "sleep":
        time.sleep(1000)
    elif kind == "exit":
        if os.fork():  # its child holds the connection
            os._exit(0)
        time.sleep(1000)
    elif kind == "lock":  # of a file that a program of another user of the machine holds
        fcntl.flock(open(lock_file, "w"), fcntl.LOCK_EX)
    elif kind == "pipe":
        child("kill -STOP $$; echo").stdout.read()
    elif kind == "full":
        while True:
            child("exec sleep 1000").stdin.write(b"x" * 1000000)
    elif kind == "leak":  # the end that is read lies beside the end that is written
        reads, _ = os.pipe()
        os.read(reads, 1)
    elif kind == "fifo":
        os.mkfifo(os.path.join(directory, "nobody"))
        open(os.path.join(directory, "nobody"))
    elif kind == "child":
        subprocess.run(["sleep", "1000"])
    elif kind == "thread":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


if kind == "holder" and rank == culprit:
    held = open(lock_file, "w")
    fcntl.flock(held, fcntl.LOCK_EX)
peers = connect()
print("ready", flush=True)
for step in range(1000000):
    if step == 20 and rank == culprit and kind != "holder":
        go_astray(peers)
    if step == 20 and kind == "holder":
        if rank == culprit:
            time.sleep(1000)
        fcntl.flock(open(lock_file, "w"), fcntl.LOCK_EX)
    exchange(peers)
    time.sleep(0.001)
