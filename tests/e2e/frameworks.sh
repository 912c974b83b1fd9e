# What TensorFlow, PaddlePaddle, JAX and torch would do with what they are told, for topics.
# shellcheck shell=bash disable=SC2154,SC2034

# Each rank reads what its framework would, listens where that says, and ends when it has reached every other rank and every other
# rank has reached it.
frameworks() { # OPTIONS of hvdrun
    cat > "$T/rank.py" << 'END'
import json, os, socket, time
env = os.environ
rank, size = int(env["HVD_RANK"]), int(env["HVD_SIZE"])
tf = json.loads(env["TF_CONFIG"])
assert sorted(tf) == ["cluster", "task"] and list(tf["cluster"]) == ["worker"], tf
assert tf["task"] == {"type": "worker", "index": rank}, tf["task"]
workers = tf["cluster"]["worker"]
assert len(workers) == size, workers
assert env["PADDLE_TRAINER_ENDPOINTS"].split(",") == workers
assert env["PADDLE_CURRENT_ENDPOINT"] == workers[rank]
assert (int(env["PADDLE_TRAINER_ID"]), int(env["PADDLE_TRAINERS_NUM"])) == (rank, size)
assert (int(env["JAX_PROCESS_ID"]), int(env["JAX_NUM_PROCESSES"])) == (rank, size)
coordinator = env["JAX_COORDINATOR_ADDRESS"]

def parts(endpoint):
    host, port = endpoint.rsplit(":", 1)
    return host.strip("[]"), int(port)

def listener(endpoint):
    host, port = parts(endpoint)
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    s.bind((host, port))
    s.listen(size)
    return s

def reach(endpoint):
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection(parts(endpoint), 5)
        except ConnectionRefusedError:
            assert time.monotonic() < end, endpoint
            time.sleep(0.02)

here = [listener(workers[rank])]
if rank == 0:
    here += [listener(coordinator), listener(env["MASTER_ADDR"] + ":" + env["MASTER_PORT"])]
for endpoint in workers + [coordinator]:
    reach(endpoint).close()
for s in here[:2]:
    for _ in range(size):
        s.accept()
print(rank, env["HVD_HOST"], "GPU", env.get("JAX_LOCAL_DEVICE_IDS"))
if rank == 0:
    print("endpoints", *workers)
    print("coordinator", coordinator)
END
    hvd "$@" --rendezvous auto,tf,paddle python3 "$T/rank.py"
    expect_status 0
    expect_no_err
}

# Ranks of one host have one address and different ports; JAX's coordinator is rank 0's host, with a port of its own.
addresses() { # WANTED: the hosts of the endpoints, in the order of ranks
    read -ra list < <(sed -n 's/^endpoints //p' "$T/out")
    expect_same "$1" "$(printf '%s\n' "${list[@]%:*}" | paste -sd' ')" 'the addresses of the ranks'
    coordinator=$(sed -n 's/^coordinator //p' "$T/out")
    expect_same "${list[0]%:*}" "${coordinator%:*}" 'the address of the coordinator'
    expect_same '' "$(printf '%s\n' "${list[@]}" "$coordinator" | sort | uniq -d)" 'endpoints that are there twice'
}
