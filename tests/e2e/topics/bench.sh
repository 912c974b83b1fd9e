# shellcheck shell=bash disable=SC2034,SC2154
# hvd_bench: its arguments, and that what it times is right. How fast it is: make bench.
limit=60

bench=$BUILD/bench/hvd_bench

one_line() { # REGEX ARGUMENT...: refused by hvd_bench with one line of its own
    local wanted=$1
    shift
    run "$bench" "$@"
    expect_status 2
    expect_same 1 "$(wc -l < "$T/err")" "the number of lines about: $*"
    expect_err "^hvd_bench: $wanted"
    expect_same '' "$(cat "$T/out")" 'what is printed besides'
}

case_every_wrong_argument_gets_one_line() {
    one_line "--op is one of allreduce, .*sendrecv, not 'sum'" --op sum
    one_line "--dtype is one of .*bf16.*bool, not 'float'" --dtype float
    one_line "--buffer is one of malloc, arena, not 'gpu'" --buffer gpu
    one_line "--model is resnet50, not 'bert'" --model bert
    one_line "unknown option '--frobnicate'" --frobnicate 1
    one_line "'--op' is unknown or needs a value" --op
    one_line '--op adasum is for f16, bf16, f32 and f64, not i32' --op adasum --dtype i32
    one_line '--model and --growth are allreduces, not --op broadcast' --model resnet50 --op broadcast
    one_line '--model and --growth have f32 tensors, not f64' --growth 10 --dtype f64
    one_line '--model and --growth are two measurements' --model resnet50 --growth 10
    one_line '--bytes 6 is not a multiple of 4' --bytes 4,6
    hvd -np 4 "$bench" --bytes 4,6
    expect_status 2
    expect_same 1 "$(grep -c '^hvd_bench: ' "$T/err")" 'the number of lines of four ranks'
}

case_sizes_and_counts_out_of_range() {
    local value
    for value in '' 0 -4 4k 4KK 17G '4,' ,4 ' 4' 99999999999999999999; do
        run "$bench" --bytes "$value"
        expect_status 2
        expect_err "^hvd_bench: --bytes is up to 64 sizes from 1 to 16G like 4,64K,1M, not '$value'"
    done
    for value in '' 0 -1 1x 1000001; do
        run "$bench" --iterations "$value"
        expect_status 2
        expect_err "^hvd_bench: --iterations is 1 to 1000000, not '$value'"
    done
}

case_help_names_every_option() {
    local option
    run "$bench" --help
    expect_status 0
    for option in $(grep -oE '"--[a-z-]+"' "$top/tests/bench/hvd_bench.c" | tr -d '"' | sort -u); do
        grep -qE -- "$option( |,|\$)" "$T/out" || fail "--help does not say $option"
    done
    run "$bench" --list
    expect_status 0
    expect_same 161 "$(tr ',' '\n' < "$T/out" | grep -c .)" 'the number of gradients'
}

# Results are checked before they are timed: an operation that is wrong fails.
case_every_operation_on_odd_sizes() {
    local op
    for op in allreduce grouped shared persistent adasum allgather broadcast alltoall reducescatter barrier sendrecv; do
        hvd -np 2 "$bench" --op "$op" --bytes 4,12,4K,300K --iterations 2 --warmup 1 --json
        expect_status 0
        [ "$op" = barrier ] || expect_same 4 "$(grep -c "^{\"op\":\"$op\".*\"median_us\":[0-9.]*,\"p10_us\":" "$T/out")" "lines of $op"
    done
}

case_every_type() {
    local dtype buffer=arena
    for dtype in u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 bool; do
        hvd -np 3 "$bench" --dtype "$dtype" --buffer "$buffer" --bytes 8,4K,64K --iterations 2 --warmup 1 --json
        expect_status 0
        expect_same 3 "$(grep -c "\"buffer\":\"$buffer\",\"dtype\":\"$dtype\"" "$T/out")" "lines of $dtype"
        if [ "$buffer" = arena ]; then buffer=malloc; else buffer=arena; fi
    done
}

# What make bench makes of their lines: figures.awk.
line() { # NAME TURN BYTES MEDIAN [LOOP [EXCHANGE]]
    echo "{\"name\":\"$1\",\"row\":\"allreduce\",\"turn\":\"$2\",\"op\":\"allreduce\",\"bytes\":$3,\"ranks\":2,\"buffer\":\"x\",\"median_us\":$4,\"p10_us\":$4,\"p90_us\":$4${5:+,\"loop_us\":$5}${6:+,\"exchange_ns\":$6}}"
}

verdict() { # LIMIT SHARE
    awk -v what=row -v label=L -v row='allreduce 4' -v ours=hvd_arena -v limit="$1" -v share="$2" -v floors=floor -f "$top/tests/bench/figures.awk" "$T/lines"
}

case_ratios_are_of_pairs_and_either_goal_is_enough() {
    # The machine was three times slower in the second turn and ten times in the third: every pair has the same ratio.
    { line hvd_arena 1 4 5.0; line mpich 1 4 10.0; line hvd_arena 2 4 15.0; line mpich 2 4 30.0; line mpich 3 4 100.0; line hvd_arena 3 4 50.0; line floor 1 4 4.0
        line floor 2 4 12.0; line floor 3 4 40.0; line openmpi 1 4 90.0; echo; } > "$T/lines"
    expect_same '0.50 of mpich (0.50 to 0.50), 0.80 of the floor (0.80 to 0.80) | met |' "$(verdict 0.5 '' | sed 's/.* best peer *| //')" 'a ratio that holds'
    expect_same 'NOT met |' "$(verdict 0.49 '' | sed 's/.*) | //')" 'a ratio that does not'
    expect_same 'NOT met |' "$(verdict 0.5 0.81 | sed 's/.*) | //')" 'a share of the floor that does not'
    expect_same 'met |' "$(verdict '' 0.8 | sed 's/.*) | //')" 'a share alone'
    { line hvd_arena 1 4 5.0 1.0; line mpich 1 4 10.0 1.5; line floor 1 4 1.0; } > "$T/lines"
    expect_same '0.50 of mpich (one pair), 0.67 in a loop, 0.20 of the floor (one pair) | NOT met |' "$(verdict 0.5 '' | sed 's/.* best peer *| //')" 'a loop that is slower'
    { for turn in 1 2 3 4 5 6 7 8 9; do line hvd_arena $turn 4 $turn.0; line mpich $turn 4 20.0; done; } > "$T/lines"
    expect_same '0.25 of mpich (0.05 to 0.45), unstable: p90 is 9.0 of p10 | NOT met |' "$(verdict 0.5 '' | sed 's/.* best peer *| //')" 'a figure that jumps'
    { for turn in 1 2 3; do line hvd_arena $turn 4 30.0; line mpich $turn 4 20.0; line floor $turn 4 29.0; done; } > "$T/lines"
    expect_same '1.50 of mpich (1.50 to 1.50), 0.97 of the floor (0.97 to 0.97), which is slower than the peer | NOT met |' \
        "$(verdict 1.0 '' | sed 's/.* best peer *| //')" 'a floor above a peer'
    { for turn in 1 2 3; do line hvd_arena $turn 4 10.0; line mpich $turn 4 20.0; line floor $turn 4 29.0; done; } > "$T/lines"
    expect_same 'met |' "$(verdict 0.5 0.8 | sed 's/.*peer | //')" 'a limit and a share, and a floor above the peer'
    { line hvd_arena 1 4 1.0; line hvd_arena 2 4 30.0; line hvd_arena 3 4 1.0; line mpich 1 4 20.0; } > "$T/lines"
    expect_same '0.05 of mpich (one pair), unstable: p90 is 30.0 of p10 | NOT met |' "$(verdict 1.0 '' | sed 's/.* best peer *| //')" 'one pair beside runs that jump'
    line floor 1 4 1.0 > "$T/lines"
    expect_same 'not measured | NOT met |' "$(verdict 0.5 '' | sed 's/.*  | //')" 'nothing measured'
    line hvd_arena 1 1048576 5.0 >> "$T/lines"
    awk -v what=table -v names='hvd_arena mpich gloo' -v said=' mpich:hung gloo:missing' -f "$top/tests/bench/figures.awk" "$T/lines" > "$T/table"
    grep -qE '^\| 1 MiB +\| +5\.00 \| +hung \| +missing \|' "$T/table" || fail "the table says: $(cat "$T/table")"
}

# A machine whose processors lie at two distances: 4 turns close, 2 far. In the others that changed during a run.
case_only_runs_at_one_exchange_are_compared() {
    {
        for turn in 1 2 3 4; do line hvd_arena $turn 4 9.0 '' 9$turn; line mpich $turn 4 20.0 '' 99; done
        line hvd_arena 5 4 300.0 '' 0; line mpich 5 4 100.0 '' 480
        for turn in 8 9; do line hvd_arena $turn 4 300.0 '' 0; line mpich $turn 4 100.0 '' 0; done
        for turn in 6 7; do line hvd_arena $turn 4 48.0 '' 480; line mpich $turn 4 60.0 '' 470; done
        for turn in 1 2; do line hvd_malloc $turn 4 50.0 '' 480; line hvd_malloc $turn 64 50.0 '' 480; done
    } > "$T/lines"
    expect_same '0.45 of mpich (0.45 to 0.45); of 9 runs, 4 at an exchange of 91 to 99 ns | met |' "$(verdict 0.5 '' | sed 's/.* best peer *| //')" 'runs far from each other'
    expect_same '4 0 4' "$(for ours in hvd_arena hvd_malloc other; do awk -v what=kept -v row='allreduce 4' -v ours=$ours -f "$top/tests/bench/figures.awk" "$T/lines"; done | xargs)" 'runs that are left'
    sed -i '/hvd_malloc/d; s/"exchange_ns":4../"exchange_ns":0/' "$T/lines"
    expect_same 4 "$(awk -v what=kept -v row='allreduce 4' -v ours=hvd_arena -f "$top/tests/bench/figures.awk" "$T/lines")" 'runs during which it changed'
    line hvd_arena 1 4 300.0 >> "$T/lines"
    expect_same 4 "$(awk -v what=kept -v row='allreduce 4' -v ours=hvd_arena -f "$top/tests/bench/figures.awk" "$T/lines")" 'a run without a figure beside runs with one'
    sed -i '/exchange_ns/!d; s/"exchange_ns":[0-9]*/"exchange_ns":0/' "$T/lines"
    expect_same 'the processors moved during all runs | NOT met |' "$(verdict 0.5 '' | sed 's/.*  | //')" 'no run without a change'
}
