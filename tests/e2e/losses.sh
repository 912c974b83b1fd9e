# shellcheck shell=bash disable=SC2154
# What the trainer says, and whether two of its runs learned the same.
losses() { # FILE: of the first 100 steps
    sed -nE 's/.*step[ =]*([0-9]+).*loss[ =]+([0-9.eE+-]+).*/\1 \2/p' "$1" | awk '$1 <= 100'
}

same_losses() { # FILE FILE [RELATIVE]: not further apart than that (1e-4), and there are as many
    local n
    n=$(wc -l < "$1")
    [ "$n" -ge 20 ] || fail "only $n losses in $1"
    expect_same "$n" "$(wc -l < "$2")" 'the number of losses'
    paste -d' ' "$1" "$2" | awk -v most="${3:-1e-4}" '
        {d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= most * $2)) {print "step", $1, $2, $4; bad = 1}}
        END {exit bad}' || fail "the losses differ"
}
