# shellcheck shell=bash disable=SC2034,SC2154
# A thousand ranks on one machine, and what is said beforehand when descriptors or processes are too few for them.
limit=100

# The most memory that process $pid and the agents below it ever held, in KiB: "HVDRUN LARGEST-AGENT".
peak_memory() {
    local child agent=0 kib
    for child in $(own_programs "$pid"); do
        kib=$(high_water "$child")
        [ "${kib:-0}" -le "$agent" ] || agent=$kib
    done
    echo "$(high_water "$pid") $agent"
}

# Each rank says that it is up, then all wait for one word.
thousand() { # RANKS ARGUMENTS of hvdrun
    local ranks=$1 memory
    shift
    mkfifo "$T/go"
    exec 6<> "$T/go"
    mark_time
    # shellcheck disable=SC2016
    start -np "$ranks" "$@" sh -c 'echo up; read -r _ < "$1"' sh "$T/go"
    until_true 60 out_has '^up$' "$ranks" || fail "not all of $ranks ranks came up: $(grep -c up "$T/out")"
    memory=$(peak_memory)
    yes 2>/dev/null | head -n "$ranks" >&6
    stop_status
    exec 6>&-
    expect_status 0
    expect_no_err
    echo "# $ranks ranks: $(((${EPOCHREALTIME/./} - since) / 1000)) ms; peak KiB of hvdrun and its largest agent here: $memory"
    [ -n "$E2E_SANITIZE" ] || [ "${memory% *}" -le 32768 ] || fail "hvdrun grew to ${memory% *} KiB"
}

case_ranks_beyond_64_may_all_call_hvd_init_at_once() {
    hvd -np 130 "$BUILD/bench/hvd_bench" --bytes 4 --iterations 3 --warmup 1 --json
    expect_status 0
    expect_out '"ranks":130'
}

slow_a_thousand_ranks() {
    thousand 1000
}

slow_three_thousand_ranks() {
    thousand 3000
}

slow_a_thousand_ranks_use_collectives() {
    hvd -np 1000 "$BUILD/bench/hvd_bench" --bytes 4 --iterations 2 --warmup 1 --json
    expect_status 0
    expect_out '"ranks":1000'
}
