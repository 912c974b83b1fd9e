# shellcheck shell=bash disable=SC2034,SC2154
# Results that are the same bits on one host, two and four: Adasum always, all reductions in flat mode.
hosts=4
limit=60

PLACED=$BUILD/tests/placed # its source says what it does

placements() { # ARGUMENTS of hvdrun
    local to
    for to in $H1:4 $H1:2,$H2:2 $H1:1,$H2:1,$H3:1,$H4:1 $H1:1,$H2:3; do
        hvd -H "$to" "$@"
        expect_status 0
        expect_no_err
        expect_count 4 '^rank [0-9]+: all right$' "$T/out"
        sort "$T/out" > "$T/bits"
        [ -e "$T/bits.first" ] || cp "$T/bits" "$T/bits.first"
        cmp -s "$T/bits" "$T/bits.first" || fail "other bits on $to: $(diff "$T/bits.first" "$T/bits" | head -n 6)"
    done
}

case_adasum_knows_no_placement() {
    placements "$PLACED" adasum
    expect_count 28 '^adasum of ' "$T/out"
}
