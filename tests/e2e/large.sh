# shellcheck shell=bash disable=SC2154
# One job of tests/e2e/large.c, which says what is compared. It needs gigabytes: where they are not there, the case is skipped.
large() { # GIB KIND DTYPE ARGUMENTS of hvdrun
    local free
    free=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
    [ "$free" -ge $(($1 + 2)) ] || skip "needs $1 GiB and 2 more, $free are free"
    hvd "${@:4}" "$BUILD/tests/large" "$2" "$3"
    expect_status 0
    expect_no_err
    expect_count 2 '^rank [0-9]+: all right$' "$T/out"
}
