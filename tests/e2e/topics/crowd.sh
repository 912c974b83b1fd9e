# shellcheck shell=bash disable=SC2034,SC2154
# Two ranks for each processor: none of them is left alone on one.
alone=1
limit=60

# Beside a stranger ranks gather, so one of three runs is enough. The kernel alone leaves three ranks on one of two processors in a
# third of the trials, or more.
slow_ranks_that_share_processors_spread() {
    local processors even
    processors=$(nproc)
    [ "$processors" -ge 2 ] && [ "$processors" -le 16 ] || skip "$processors processors"
    [ "$processors" = "$(getconf _NPROCESSORS_ONLN)" ] || skip 'some processors are not for us'
    for _ in 1 2 3; do
        hvd -np $((2 * processors)) "$BUILD/tests/crowd" 20
        expect_status 0
        even=$(sed -n 's/^even in \([0-9]*\) of 20$/\1/p' "$T/out")
        [ -n "$even" ] || fail "it says $(cat "$T/out")"
        [ "$even" -lt 18 ] || return 0
    done
    fail "the ranks were spread in $even of 20 trials only"
}
