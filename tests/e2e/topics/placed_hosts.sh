# shellcheck shell=bash disable=SC2034,SC2154
# Results that are the same bits on one host, two and four: Adasum always, all reductions in flat mode.
hosts=4
limit=60

PLACED=$BUILD/tests/placed # its source says what it does

placements() { # ARGUMENTS of hvdrun
    local to
    for to in $H1:4 $H1:2,$H2:2 $H1:1,$H2:1,$H3:1,$H4:1 $H1:1,$H2:3 "$H1:2,$H2:2 --map-by node"; do
        # shellcheck disable=SC2086
        hvd -H $to "$@"
        expect_status 0
        expect_no_err
        expect_count 4 '^rank [0-9]+: all right$' "$T/out"
        sort "$T/out" > "$T/bits"
        [ -e "$T/bits.first" ] || cp "$T/bits" "$T/bits.first"
        cmp -s "$T/bits" "$T/bits.first" || fail "other bits on $to: $(diff "$T/bits.first" "$T/bits" | head -n 6)"
    done
}

case_flat_sums_know_no_placement() {
    placements --no-hierarchical-allreduce "$PLACED" flat
    expect_count 24 '^(sum|average) of ' "$T/out"
}

# The case before it proves something: these elements show the order in which they are taken. (float16 is summed as float32 and rounded
# once, which hides the order here.)
case_by_default_sums_know_it() {
    hvd -H $H1:4 "$PLACED" sums
    expect_status 0
    sort "$T/out" > "$T/one"
    hvd -H $H1:2,$H2:2 "$PLACED" sums
    expect_status 0
    sort "$T/out" > "$T/two"
    local type what
    for type in float32 float64; do
        for what in 'sum of 70001' 'reducescatter of 50003'; do
            ! grep -h "^$what $type" "$T/one" "$T/two" | sort | uniq -d | grep . || fail "$what $type is the same"
        done
    done
}

case_adasum_knows_no_placement() {
    placements "$PLACED" adasum
    expect_count 28 '^adasum of ' "$T/out"
}
