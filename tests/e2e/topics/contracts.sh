# TF_CONFIG, PADDLE_* and JAX_* on one host: who gets them, and whose values win.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016

case_only_who_asks_has_a_list() {
    TF_CONFIG=outer PADDLE_TRAINER_ID=9 JAX_PROCESS_ID=9 hvd -np 2 env
    expect_status 0
    expect_no "$T/out" '^(TF_CONFIG|PADDLE_|FLAGS_selected)'
    expect_count 2 '^JAX_COORDINATOR_ADDRESS=127.0.0.1:[1-9][0-9]*$' "$T/out"
    expect_count 2 '^JAX_NUM_PROCESSES=2$' "$T/out"
    expect_count 1 '^JAX_PROCESS_ID=0$' "$T/out"
    expect_count 1 '^JAX_PROCESS_ID=1$' "$T/out"
    hvd -np 2 --rendezvous none env
    expect_no "$T/out" '^(TF_CONFIG|PADDLE_|JAX_|MASTER_)'
    hvd -np 2 --rendezvous tf env
    expect_no "$T/out" '^(PADDLE_|JAX_|MASTER_)'
    expect_count 2 '^TF_CONFIG=' "$T/out"
}

case_tf_config_is_json() {
    hvd -np 3 --rendezvous tf python3 -c '
import json, os
tf = json.loads(os.environ["TF_CONFIG"])
print(tf["task"]["type"], tf["task"]["index"], len(set(tf["cluster"]["worker"])), tf["cluster"]["worker"][0].split(":")[0])'
    expect_status 0
    expect_sorted 'worker 0 3 127.0.0.1' 'worker 1 3 127.0.0.1' 'worker 2 3 127.0.0.1'
}

# Nothing but what the three document, each list whole and in the order of the ranks.
case_by_their_documented_formats() {
    hvd -np 3 --rendezvous tf,paddle,jax python3 -c '
import json, os, re
e = os.environ
rank, address = int(e["HVD_RANK"]), re.compile(r"127\.0\.0\.1:([1-9][0-9]{0,4})")
tf = json.loads(e["TF_CONFIG"])
assert set(tf) == {"cluster", "task"} and set(tf["cluster"]) == {"worker"}, tf
assert tf["task"] == {"type": "worker", "index": rank} and type(tf["task"]["index"]) is int, tf
ends = e["PADDLE_TRAINER_ENDPOINTS"].split(",")
assert len(ends) == len(set(ends)) == int(e["PADDLE_TRAINERS_NUM"]) == 3, ends
assert e["PADDLE_TRAINER_ID"] == str(rank) and e["PADDLE_CURRENT_ENDPOINT"] == ends[rank], ends
assert e["JAX_NUM_PROCESSES"] == "3" and e["JAX_PROCESS_ID"] == str(rank)
assert e["JAX_COORDINATOR_ADDRESS"] not in ends
for a in tf["cluster"]["worker"] + ends + [e["JAX_COORDINATOR_ADDRESS"]]:
    assert int(address.fullmatch(a).group(1)) < 65536, a
print(*tf["cluster"]["worker"], *ends, e["JAX_COORDINATOR_ADDRESS"])'
    expect_status 0
    expect_no_err
    expect_same 1 "$(sort -u "$T/out" | wc -l)" 'lists that the ranks have'
    expect_same 3 "$(wc -l < "$T/out")" 'ranks'
}

case_the_users_own_values_win() {
    hvd -np 2 --rendezvous tf,paddle,jax -x TF_CONFIG={} -x PADDLE_TRAINER_ENDPOINTS=a:1,b:2 -x JAX_COORDINATOR_ADDRESS=c:3 \
        sh -c 'echo $PADDLE_TRAINER_ID $TF_CONFIG $PADDLE_TRAINER_ENDPOINTS $PADDLE_CURRENT_ENDPOINT $JAX_COORDINATOR_ADDRESS'
    expect_status 0
    expect_sorted '0 {} a:1,b:2 a:1 c:3' '1 {} a:1,b:2 b:2 c:3'
}

# Every epoch has ports of its own.
case_after_a_restart() {
    hvd -np 2 --rendezvous paddle --max-restarts 1 sh -c '[ $HVD_RANK = 1 ] || {
        echo "$PADDLE_TRAINER_ENDPOINTS"; [ $HVD_RESTART_COUNT = 1 ]; }'
    expect_status 0
    expect_count 2 '^127.0.0.1:[0-9]+,127.0.0.1:[0-9]+$' "$T/out"
    expect_same 2 "$(sort -u "$T/out" | wc -l)" 'lists'
}

case_more_than_a_variable_holds() {
    local most
    most=$(cat /sys/fs/cgroup/{pids/,}pids.max 2> /dev/null | grep -v max | sort -n | head -n 1)
    [ "${most:-10000}" -ge 10000 ] || skip "more than $most processes are not allowed here (pids.max)"
    hvd -np 8000 --oversubscribe --rendezvous tf true
    expect_status 125
    expect_err 'the addresses of 8000 ranks are [0-9]+ bytes'
    expect_err 'leave tf and paddle out'
}

case_words_of_the_list() {
    bad_input "'tensorflow' is none of auto, none, env, pmix, pmi1, gloo, jax, tf and paddle" --rendezvous env,tensorflow -np 1 touch "$T/started"
    bad_input "'none' stands alone" --rendezvous none,tf -np 1 touch "$T/started"
}
