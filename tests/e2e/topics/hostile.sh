# shellcheck shell=bash disable=SC2034,SC2154
# The tests with hostile peers (tests/unit/**/test_hostile_*.c) with other messages than those of every day, and more of them.
limit=1200

slow_another_seed() {
    local seed=${HOSTILE_SEED:-$RANDOM} turns=60 name
    echo "# HOSTILE_SEED=$seed HOSTILE_TURNS=$turns"
    for name in hosts launcher servers children daemon; do
        [ -x "$BUILD/tests/test_hostile_$name" ] || skip "test_hostile_$name is not built (make unit)"
        HOSTILE_SEED=$seed HOSTILE_TURNS=$turns "$BUILD/tests/test_hostile_$name" > "$T/$name" 2>&1 ||
            fail "HOSTILE_SEED=$seed HOSTILE_TURNS=$turns test_hostile_$name: $(grep -a -m 1 ':F:\|:E:' "$T/$name")"
    done
}
