# shellcheck shell=bash disable=SC2154
# Parts of run.sh about the engine on one host: allreduce, model, first, growth.

part_allreduce() {
    local n
    for n in ${BENCH_RANKS:-2 4}; do
        on_one_host "$n"
        title "allreduce, f32 sum in place, $n ranks on one host"
        begin_set "allreduce.$n" hvd_arena hvd_malloc hvd_persistent hvd_shared mpich openmpi gloo floor floor_malloc floor_readv
        # shellcheck disable=SC2086 # words
        allreduce_set 12 20 20 ${BENCH_BYTES:-4 64 4096 65536 1048576 4194304 16777216 67108864 268435456}
        "allreduce_goals_$n"
    done
}

allreduce_goals_2() {
    row '4 B, 2 ranks, by name' allreduce 4 hvd_arena 1.0
    row '4 B, 2 ranks, persistent handle' allreduce 4 hvd_persistent 0.7
    row '4 KiB, 2 ranks, arena' allreduce 4096 hvd_arena 0.5
    row '64 KiB, 2 ranks, arena' allreduce 65536 hvd_arena 0.25
    row '1 MiB, 2 ranks, arena' allreduce 1048576 hvd_arena 0.25
    row '16 MiB, 2 ranks, arena' allreduce 16777216 hvd_arena 0.25 0.8
    row '64 MiB, 2 ranks, arena' allreduce 67108864 hvd_arena 0.25 0.8
    row '256 MiB, 2 ranks, arena' allreduce 268435456 hvd_arena 0.25 0.8
    row '16 MiB, 2 ranks, malloc' allreduce 16777216 hvd_malloc 0.8 0.85 floor_malloc,floor_readv
    row '64 MiB, 2 ranks, malloc' allreduce 67108864 hvd_malloc 0.8 0.85 floor_malloc,floor_readv
    row '256 MiB, 2 ranks, malloc' allreduce 268435456 hvd_malloc 0.8 0.85 floor_malloc,floor_readv
}

allreduce_goals_4() {
    row '4 B, 4 ranks' allreduce 4 hvd_arena 0.9
    row '64 MiB, 4 ranks, arena' allreduce 67108864 hvd_arena 0.2 0.75
    row '256 MiB, 4 ranks, arena' allreduce 268435456 hvd_arena 0.2 0.75
}

# Which way of summing a model's gradients each peer was fastest with.
ways() {
    sed -nE 's/.*"buffer":"([a-z]+)".*"way":"([^"]*)".*/\1: \2/p' "$lines" | sort | uniq -c |
        awk '{ n = $1; sub(/^ *[0-9]+ /, ""); split($0, part, ": "); if (n > most[part[1]]) { most[part[1]] = n; way[part[1]] = part[2] } }
            END { for (name in way) printf "  %s was fastest with: %s\n", name, way[name] }'
}

part_model() {
    local n bytes=102228128
    for n in ${BENCH_RANKS:-2 4}; do
        on_one_host "$n"
        title "one step of ResNet-50: 161 gradients, f32 sum, $n ranks on one host"
        begin_set "model.$n" hvd_arena hvd_malloc mpich openmpi gloo floor floor_malloc floor_readv
        take_turns 15 resnet50 "$bytes"
        table
        ways
        if [ "$n" = 2 ]; then
            row 'ResNet-50, 2 ranks, arena' resnet50 "$bytes" hvd_arena 0.4
            row 'ResNet-50, 2 ranks, malloc' resnet50 "$bytes" hvd_malloc 0.9 '' floor_malloc,floor_readv
        else
            row 'ResNet-50, 4 ranks, arena' resnet50 "$bytes" hvd_arena 0.25
        fi
    done
}

# No goal of its own but the peers': what a rank gives is 4 B, 64 KiB or 16 MiB.
part_ops() {
    local n op
    for n in ${BENCH_RANKS:-2 4}; do
        on_one_host "$n"
        title "other operations, f32, $n ranks on one host; bytes that a rank gives, in an alltoall to each"
        begin_set "ops.$n" hvd_arena hvd_malloc mpich openmpi
        for op in allgather broadcast alltoall reducescatter; do
            # shellcheck disable=SC2086 # words
            take_turns 3 "$op" "$(that_fit "$n" ${BENCH_BYTES:-4 65536 16777216})"
        done
        table
    done
}

# From the command to the first result, and out again.
part_first() {
    local n out=$scratch/first run peer
    for n in ${BENCH_RANKS:-2 4}; do
        title "init, an allreduce of 4 B, shutdown: whole command, $n ranks"
        run=(-- hvdrun "$build/hvdrun" -np "$n" "$build/bench/hvd_bench" --bytes 4 --iterations 1 --warmup 0)
        for peer in mpich openmpi; do
            [ -x "$build/bench/mpi_first.$peer" ] || continue
            mpi_launcher "$peer" "$n"
            run+=(-- "$peer" "${launcher[@]}" "$build/bench/mpi_first.$peer")
        done
        # shellcheck disable=SC2086 # a command and its arguments
        $with "$build/bench/interleave" "$rounds:${BENCH_SECONDS:-6}" 10 "${run[@]}" > "$out" || : # judge says what never succeeded
        times "$out"
        judge "$out"
        peer=$(awk '$1 != "hvdrun" && $5 > 0 && (!v || $2 < v) { v = $2; n = $1 } END { print n }' "$out")
        [ -z "$peer" ] || goal "command to first result, $n ranks" "$(ratio hvdrun "$peer" "$out")" 0.3 " of $peer"
    done
}

# What the engine's threads have run, in microseconds.
engine_ran() { # PID
    cat "/proc/$1/task/"*/schedstat | awk '{ sum += $1 } END { printf "%d\n", sum / 1000 }'
}

engine_idle() {
    local pid child engine='' word before
    mkfifo "$scratch/idle"
    # shellcheck disable=SC2086 # a command and its arguments
    $with timeout 30 "$build/hvdrun" -np 2 "$build/bench/hvd_bench" --model resnet50 --json --iterations 3 --idle 3 > "$scratch/idle" 2> "$scratch/err" &
    pid=$!
    exec 7< "$scratch/idle"
    while read -r -t 20 -u 7 word && [ "$word" != idle ]; do :; done
    for child in $(descendants "$pid"); do
        [ "$(cat "/proc/$child/comm" 2> /dev/null)" != hvd-engine ] || engine=$child
    done
    if [ "${word:-}" = idle ] && [ -n "$engine" ]; then
        sleep 0.5 # what follows the last step is over
        before=$(engine_ran "$engine")
        sleep 1
        goal 'engine, idle for a second between steps' $(($(engine_ran "$engine") - before)) 1000 ' us of CPU'
    else
        trouble "no engine was found: $(head -n 1 "$scratch/err")"
    fi
    wait "$pid" || trouble "hvd_bench: $(head -n 1 "$scratch/err")"
    exec 7<&-
}

part_growth() {
    local names value few='' turn
    title 'cost as work grows: tensors of 4 B in flight, 2 ranks, microseconds for each'
    : > "$scratch/growth"
    for turn in 1 2 3; do
        for names in 100 1000 10000; do
            # shellcheck disable=SC2086 # a command and its arguments
            $with timeout 60 "$build/hvdrun" -np 2 "$build/bench/hvd_bench" --json --bytes 4 --growth "$names" --limit-ms "$limit_ms" \
                >> "$scratch/growth" 2> "$scratch/err" || echo "  $names, turn $turn: $(head -n 1 "$scratch/err")"
        done
    done
    for names in 100 1000 10000; do
        value=$(sed -nE "s/.*\"names\":$names,.*\"median_us\":([0-9.]+).*/\1/p" "$scratch/growth" | sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)] }')
        [ "$names" != 100 ] || few=$value
        printf '  %8d names %12s\n' "$names" "${value:--}"
    done
    [ -z "$value" ] || [ -z "$few" ] ||
        goal '10,000 tensors in flight, each' "$(awk -v a="$value" -v b="$few" 'BEGIN { printf "%.2f", a / b }')" 1.25 ' of one of 100'
    engine_idle
}
