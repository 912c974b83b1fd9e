# shellcheck shell=bash disable=SC2034,SC2154
# --encrypt: what somebody on the wire between the hosts can read, and that everything else is as without.
hosts=3
limit=60

KINDS=$BUILD/tests/kinds

# Prints how many packets at the first host held NEEDLE while the job ran.
overheard() { # NEEDLE OPTION... -- COMMAND...
    local needle=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    # shellcheck disable=SC2016
    hvd "${options[@]}" -H $H1:1,$H2:1,$H3:1 sh -c \
        'needle=$1; shift; [ $HOROVOD_RANK = 0 ] || exec "$@"; exec "$0" "$needle" "$@"' "$BUILD/tests/overhear" "$needle" "$@"
    expect_status 0
    expect_no_err
    sed -n 's/^overheard //p' "$T/out"
}

case_tensors_are_not_readable() {
    needs_kind ns
    local clear secret
    # The names of tensors go before the numbers that stand for them.
    clear=$(overheard grad. -- "$BUILD/tests/steps" 2) || fail "$clear"
    secret=$(overheard grad. --encrypt -- "$BUILD/tests/steps" 2) || fail "$secret"
    [ "$clear" -gt 0 ] || fail "without --encrypt $clear packets held a tensor's name: the test does not see them"
    [ "$secret" = 0 ] || fail "$secret packets held a tensor's name"
}

case_the_rendezvous_is_not_readable() {
    needs_kind ns
    local clear secret
    clear=$(overheard rank_ -- "$BUILD/tests/gloo-client") || fail "$clear"
    secret=$(overheard rank_ --encrypt -- "$BUILD/tests/gloo-client") || fail "$secret"
    [ "$clear" -gt 0 ] || fail "without --encrypt $clear packets held a key: the test does not see them"
    [ "$secret" = 0 ] || fail "$secret packets held a key"
}

case_every_kind_of_operation() {
    HVDRUN_ENCRYPT=1 hvd -H $H1:1,$H2:3,$H3:2 "$KINDS" 8 1000000
    expect_status 0
    expect_no_err
    expect_count 6 '^rank [0-9]+: all right$' "$T/out"
}

case_a_rank_that_dies_is_named() {
    # shellcheck disable=SC2016
    hvd --encrypt -np 3 -H $H1:1,$H2:1,$H3:1 sh -c '[ $HOROVOD_RANK != 2 ] || (sleep 1; kill -9 $$) & exec "$0" 1000000 200000' "$KINDS"
    expect_status 137
    expect_err "rank 2 on $H3.*signal 9"
}

case_a_host_without_the_module_is_named() {
    needs_kind ns
    mkdir -p "$T/bare/modules"
    cp "$BUILD"/hvdagent "$T/bare"
    cp "$BUILD"/modules/hvd-engine "$BUILD"/modules/auth.so "$T/bare/modules"
    hvd --encrypt -np 2 -H $H1:1,$H2:1 --agent-path "$T/bare/hvdagent" "$KINDS" 1 100
    expect_status 125
    expect_err 'tls.so'
}
