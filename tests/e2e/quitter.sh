# shellcheck shell=bash disable=SC2034,SC2154
# What hvd_abort is tested with, for topics.
QUITTER=$BUILD/tests/quitter # its source says what it does

# Every other rank hears of it within 100 ms, and hvdrun names the rank, its sentence and its status.
rank_is_named() { # STATUS HOST RANKS
    expect_status "$1"
    expect_err "^hvdrun: rank 1 on $2 \\(pid [0-9]+\\) failed first: gave up: ValueError: bad .batch; exit status "
    expect_count $(($3 - 1)) "^heard [0-9]+: rank 1 on .* gave up: ValueError: bad .batch$" "$T/out"
    expect_count 1 '^cleaned up$' "$T/out"
    awk '$1 == "said" {said = $2} $1 == "heard" {heard = $2 + 0; if (heard > last) last = heard} END {exit !(last - said < 100000000)}' "$T/out" ||
        fail "a rank was not told within 100 ms"
}
