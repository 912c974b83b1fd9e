#!/bin/bash
# Runs each fuzz target in $BUILD/tests for FUZZ_SECONDS (10), from a corpus made on the fly; one TAP line each.
#
# Seeds: tests/fuzz/NAME.seeds, one a line, with the escapes of printf's %b (\n, \0200, ...). What a target finds (crash-*) is kept in
# $BUILD/found and printed in base64.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
BUILD=$(realpath -m "${BUILD:-build/fuzz}")
seconds=${FUZZ_SECONDS:-10}
failed=0

make_seeds() { # NAME DIRECTORY
    local line n=0
    mkdir -p "$2"
    [ -e "tests/fuzz/$1.seeds" ] || return 0
    while IFS= read -r line; do
        n=$((n + 1))
        printf '%b' "$line" > "$2/seed-$n"
    done < "tests/fuzz/$1.seeds"
}

run_target() { # NAME
    local name=$1 dir=$BUILD/corpus/$1 log=$BUILD/$1.log found=$BUILD/found/$1 status
    rm -rf "$dir" "$found"
    mkdir -p "$found"
    make_seeds "$name" "$dir"
    # A leak, a hang of 10 s and an allocation of 256 MiB are findings too.
    UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 timeout --foreground -k 5 $((seconds + 60)) "$BUILD/tests/$name" \
        -max_total_time="$seconds" -timeout=10 -malloc_limit_mb=256 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$found/" "$dir" > "$log" 2>&1 < /dev/null
    status=$?
    if [ $status = 0 ]; then
        echo "ok - fuzz: $name ($(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s)"
    else
        failed=1
        tail -n 30 "$log" | sed 's/^/    # /'
        find "$found" -type f | while read -r file; do echo "    # $file: $(base64 -w 0 "$file" | head -c 2000)"; done
        echo "not ok - fuzz: $name (exit status $status)"
    fi
}

for file in tests/fuzz/fuzz_*.c; do
    [ -e "$file" ] || continue
    run_target "$(basename "$file" .c)"
done
exit $failed
