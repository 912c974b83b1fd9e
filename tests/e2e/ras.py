"""A rank whose first process serves as NCCL's RAS service does: MODE is well, mute or foreign (nobody listens)."""
import os, socket, sys, time

mode, port = sys.argv[1], int(os.environ["NCCL_RAS_ADDR"].rsplit(":", 1)[1])
rank = int(os.environ["RANK"])
server = socket.create_server(("127.0.0.1", port)) if rank == 0 and mode != "foreign" else None
print("ready", flush=True)
while not server:
    time.sleep(1)
while True:
    client, _ = server.accept()
    words = client.makefile("rw")
    if words.readline() != "CLIENT PROTOCOL 2\n" or mode == "mute":
        time.sleep(1000)
    print("SERVER PROTOCOL 2", file=words, flush=True)
    assert words.readline() == "TIMEOUT 1\n"
    print("OK", file=words, flush=True)
    assert words.readline() == "STATUS\n"
    print("NCCL version 2.27.3 compiled with CUDA 12.9\n\nJob summary\n===========\n\nCommunicators... (0.00s)\n=============\n", file=words)
    print("    0         1         1         2     RUNNING    MISMATCH\n\nWarnings\n========\n", file=words)
    print("  Communicator ranks have different collective operation counts", file=words, flush=True)
    words.close()
    client.close()
