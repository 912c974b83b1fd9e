# shellcheck shell=bash disable=SC2154
# Parts of run.sh about the engine on one host: allreduce, waiting, model, ops, first, growth.

part_allreduce() {
    local n
    for n in ${BENCH_RANKS:-2 3 4 8}; do
        on_one_host "$n"
        title "allreduce, f32 sum in place, $n ranks on one host"
        begin_set "allreduce.$n" hvd_arena hvd_malloc hvd_persistent hvd_shared mpich openmpi mpich5 openmpi5 gloo floor floor_malloc floor_readv
        # shellcheck disable=SC2086 # words
        allreduce_set 12 20 20 ${BENCH_BYTES:-4 64 4096 65536 1048576 4194304 16777216 67108864 268435456}
        if [ "$n" = 2 ]; then goals_of_two; else goals_of_more; fi
    done
}

goals_of_two() {
    allreduce_rows "2 ranks" << END
4 hvd_arena 0.9
4 hvd_persistent 0.6
64 hvd_arena 0.9
64 hvd_persistent 0.6
4096 hvd_arena 0.5
65536 hvd_arena 0.25
1048576 hvd_arena 0.25
4194304 hvd_arena 0.25
16777216 hvd_arena 0.25 0.8
67108864 hvd_arena 0.25 0.8
268435456 hvd_arena 0.25 0.8
16777216 hvd_malloc 0.8 0.85
67108864 hvd_malloc 0.8 0.85
268435456 hvd_malloc 0.8 0.85
END
}

# More ranks than some machines have processors.
goals_of_more() {
    allreduce_rows "$ranks ranks" << END
4 hvd_arena 1.0
64 hvd_arena 1.0
4096 hvd_arena 0.8
65536 hvd_arena 0.4
1048576 hvd_arena 0.4
4194304 hvd_arena 0.3
16777216 hvd_arena 0.3
67108864 hvd_arena 0.2 0.75
268435456 hvd_arena 0.2 0.75
END
}

busy=()

keep_busy() { # PROCESSES: that want a processor each
    for _ in $(seq "$1"); do
        while :; do :; done &
        busy+=($!)
    done
}

# Ranks that wait must let those run that they wait for, and must not lose their processor to a neighbour for long.
part_waiting() {
    local n
    on_one_host 2
    for n in 1 "$(nproc)"; do
        title "allreduce, f32 sum in place, 2 ranks beside $n busy processes on $(nproc) processors"
        begin_set "waiting.$n" hvd_arena mpich openmpi mpich5 openmpi5 floor
        keep_busy "$n"
        take_turns 12 allreduce 4,64,4096,65536
        kill "${busy[@]}"
        wait "${busy[@]}" 2> /dev/null || :
        busy=()
        table
        allreduce_rows "2 ranks, $n busy" << END
4 hvd_arena 1.0
64 hvd_arena 1.0
4096 hvd_arena 1.0
65536 hvd_arena 1.0
END
    done
    on_one_host $(($(nproc) + 1))
    title "a rank that counts while $(nproc) ranks wait, on $(nproc) processors: time of a round"
    begin_set waiting.count hvd_arena openmpi openmpi5
    take_turns 12 count 0
    table
    row 'a round beside ranks that wait' count 0 hvd_arena 1.11 '' none openmpi
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
        [ "$n" = 2 ] || [ "$n" = 4 ] || continue
        on_one_host "$n"
        title "one step of ResNet-50: 161 gradients, f32 sum, $n ranks on one host"
        begin_set "model.$n" hvd_arena hvd_malloc mpich openmpi mpich5 openmpi5 gloo floor floor_malloc floor_readv
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
        begin_set "ops.$n" hvd_arena hvd_malloc mpich openmpi mpich5 openmpi5
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
        run=(-- hvdrun "$build/hvdrun" -np "$n" "$build/bench/hvd_first")
        for peer in mpich openmpi mpich5 openmpi5; do
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
