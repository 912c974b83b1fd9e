# shellcheck shell=bash disable=SC2034,SC2154
# What hvdrun's options for the engine change between hosts: how much travels as one, what names cost, how long is waited.
hosts=2
limit=60

STEPS=$BUILD/tests/steps

# Prints how many operations the first host's engine has brought to the network.
operations() { # OPTION...
    hvd -H $H1:1,$H2:1 --timeline-filename /tmp/fusion.%r.json "$@" "$BUILD/tests/fused" 2
    expect_status 0
    expect_no_err
    expect_count 2 'all right$' "$T/out"
    on 1 'cat /tmp/fusion.engine.*.json; rm /tmp/fusion.*' > "$T/trace" || fail "no file of the engine"
    on 2 'rm -f /tmp/fusion.*'
    grep -c '"name":"NETWORK","ph":"B"' "$T/trace"
}

case_the_fusion_threshold_decides_what_travels_as_one() {
    local alone fused little
    alone=$(operations --fusion-threshold-mb 0 --cycle-time-ms 10) || fail "$alone"
    fused=$(operations --fusion-threshold-mb 4 --cycle-time-ms 10) || fail "$fused"
    little=$(HOROVOD_FUSION_THRESHOLD=80000 operations --cycle-time-ms 10) || fail "$little"
    # Half of them are called one by one.
    [ "$fused" -lt $((alone * 7 / 10)) ] || fail "$fused operations with fusion, $alone without"
    [ "$little" -gt "$fused" ] && [ "$little" -le "$alone" ] || fail "$little operations with 80 kB, $fused with 4 MiB"
}

# Prints the bytes that both hosts have sent while 3000 times 4 bytes were reduced, in operations that the engines do.
sent() { # OPTION...
    # shellcheck disable=SC2016
    hvd -H $H1:1,$H2:1 "$@" sh -c '
        sent() { cat /sys/class/net/[!l]*/statistics/tx_bytes | awk "{ s += \$1 } END { print s }"; }
        before=$(sent)
        "$0" --op persistent --bytes 4 --iterations 3000 --warmup 10 > /dev/null || exit
        echo $(($(sent) - before))' "$BUILD/bench/hvd_bench"
    expect_status 0
    awk '{ s += $1 } END { print s }' "$T/out"
}

case_names_without_a_cache_cost_bytes() {
    needs_kind ns
    local cached full one
    cached=$(sent)
    full=$(sent --cache-capacity 0)
    one=$(HOROVOD_CACHE_CAPACITY=100 sent)
    # Up and down, the description has 52 bytes and the name.
    [ $((full - cached)) -ge 300000 ] || fail "$full bytes without a cache, $cached with"
    [ $((full - one)) -ge 300000 ] || fail "$full bytes without a cache, $one with 100 names"
}

# 940 kB of a step could be fused.
case_a_cycle_is_waited_for_but_not_by_a_full_batch() {
    mark_time
    hvd -H $H1:1,$H2:1 --cycle-time-ms 200.5 "$STEPS" 6
    expect_status 0
    [ $((${EPOCHREALTIME/./} - since)) -ge 1200000 ] || fail "6 steps that wait 200 ms took less"
    sort "$T/out" > "$T/slow"
    mark_time
    HOROVOD_CYCLE_TIME=5000 hvd -H $H1:1,$H2:1 --fusion-threshold 20000 "$STEPS" 6 # only one tensor is so small
    expect_status 0
    expect_within 4
    sort "$T/out" > "$T/full"
    cmp -s "$T/slow" "$T/full" || fail "other results: $(cat "$T/slow" "$T/full")"
}
