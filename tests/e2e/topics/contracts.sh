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
    hvd -np 8000 --oversubscribe --rendezvous tf true
    expect_status 125
    expect_err 'the addresses of 8000 ranks are [0-9]+ bytes'
    expect_err 'leave tf and paddle out'
}

case_words_of_the_list() {
    bad_input "'tensorflow' is none of auto, none, env, pmix, pmi1, gloo, jax, tf and paddle" --rendezvous env,tensorflow -np 1 touch "$T/started"
    bad_input "'none' stands alone" --rendezvous none,tf -np 1 touch "$T/started"
}
