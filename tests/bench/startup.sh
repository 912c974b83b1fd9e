# shellcheck shell=bash disable=SC2154
# Parts of run.sh about the launcher itself: how fast it starts, what it takes.

part_launch() {
    local np out=$scratch/launch run
    for np in 2 8 64; do
        run=(-- hvdrun "$build/hvdrun" -np "$np" true)
        ! have mpiexec.hydra || run+=(-- hydra mpiexec.hydra -n "$np" true)
        ! have mpirun.openmpi || run+=(-- openmpi "${mpirun[@]}" -np "$np" true)
        run+=(-- floor "$build/bench/spawn_floor" "$np" true)
        title "launch of true, np $np"
        $with "$build/bench/interleave" "$rounds:${BENCH_SECONDS:-6}" $((longest / 2)) "${run[@]}" > "$out" || : # judge says what never succeeded
        times "$out"
        judge "$out"
        goal_ratio hvdrun hydra "$out" 1.0 "launch, np $np: "
        [ "$np" != 64 ] || goal_ratio hvdrun floor "$out" 1.5 "launch, np $np: "
    done
}

# Beside libssh2's own time, on that many hosts.
ssh_start() { # HOSTS SECONDS
    local hosts_sh=$here/../hosts/hosts.sh out=$scratch/ssh n=$1 k names=()
    title "start on $n hosts over SSH"
    [ -x "$build/bench/ssh_floor" ] || { echo "  left out: libssh2 is not installed"; return; }
    hosts_up "$n" || return 0
    for k in $(seq 1 "$n"); do names+=("node$k"); done
    "$hosts_sh" exec head "$build/bench/interleave" "$rounds:${BENCH_SECONDS:-$2}" 30 \
        -- hvdrun "$build/hvdrun" -np "$n" -H "$(host_list "$n" 1)" true \
        -- floor "$build/bench/ssh_floor" root /root/.ssh/id_ed25519 true "${names[@]}" > "$out" || :
    times "$out"
    judge "$out"
    goal_ratio hvdrun floor "$out" 1.5 "start on $n hosts: "
    "$hosts_sh" down
}

part_ssh() {
    ssh_start 16 6
}

part_ssh64() {
    ssh_start 64 12
}

# On the way: the session, SSH, hvdrun, the pipe. Runs' own medians of it; goals are of the worst run, since one is all that a user sees.
part_firstoutput() {
    local n=64 run out=$scratch/delays worst
    title "a first line of each worker of a job on $n hosts, from its write until it is read from hvdrun"
    hosts_up "$n" || return 0
    : > "$out"
    for run in 1 2 3 4 5; do
        "$here/../hosts/hosts.sh" exec head timeout 60 "$build/hvdrun" -H "$(host_list "$n" 1)" "$build/bench/line_delay" write 2> "$scratch/err" < /dev/null |
            "$build/bench/line_delay" read "$n" >> "$out" || trouble "run $run: $(head -n 1 "$scratch/err")"
    done
    "$here/../hosts/hosts.sh" down
    [ -s "$out" ] || return 0
    awk '{ printf "  the first %8s ms, the median %8s ms, the slowest %8s ms\n", $1, $2, $3 }' "$out"
    worst=$(sort -n "$out" | tail -n 1)
    goal 'first output of a 64-host job, slowest run' "${worst%% *}" 50 ' ms'
}

# Many hosts that are all this machine: --rsh runs the agent's command here.
fan_list() { # HOSTS
    local k list=''
    for k in $(seq 1 "$1"); do list=$list,fan$k:1; done
    echo "${list#,}"
}

# hvdrun's peak memory in KiB while as many workers run.
fan_memory() { # HOSTS
    local pid up=0
    "$build/hvdrun" -H "$(fan_list "$1")" --rsh "$scratch/fan_rsh" sh -c 'echo up; read -r _ < "$1"' sh "$scratch/fan_go" \
        > "$scratch/fan_out" 2> "$scratch/err" < /dev/null &
    pid=$!
    exec 3< "$scratch/fan_out"
    while [ "$up" -lt "$1" ] && read -r -t 60 -u 3 _; do up=$((up + 1)); done
    [ "$up" -lt "$1" ] || awk '/^VmHWM/ { print $2 }' "/proc/$pid/status"
    for _ in $(seq "$1"); do echo >&4; done
    [ "$up" = "$1" ] || kill "$pid" 2> /dev/null || :
    wait "$pid" || return 1
    exec 3<&-
}

# What one more host takes: from 64 to 256, and linear, from 64 to 128 as from 128 to 256.
fan_cost() { # WHAT UNIT LIMIT OF_64 OF_128 OF_256: LIMIT "": only to be linear
    local each
    each=$(awk -v a="$4" -v b="$6" 'BEGIN { printf "%.2f", (b - a) / 192 }')
    if [ -n "$3" ]; then goal "hvdrun's $1 for a host, 256 hosts" "$each" "$3" "$2"; else printf '  %-44s %8s%s\n' "hvdrun's $1 for a host, 256 hosts" "$each" "$2"; fi
    goal "the same $1 from 128 to 256" "$(awk -v a="$4" -v b="$5" -v c="$6" 'BEGIN { printf "%.2f", (b > a) ? (c - b) / 128 / ((b - a) / 64) : 0 }')" 1.25 ' of 64 to 128'
}

part_fanout256() {
    local n kib=() cpu=() run=() out=$scratch/fan
    title '64, 128 and 256 hosts by --rsh, all of them this machine: what hvdrun itself takes'
    # shellcheck disable=SC2016 # expanded by that script
    printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' > "$scratch/fan_rsh"
    chmod +x "$scratch/fan_rsh"
    mkfifo "$scratch/fan_out" "$scratch/fan_go"
    exec 4<> "$scratch/fan_go"
    for n in 64 128 256; do
        run+=(-- "hosts_$n" "$build/hvdrun" -H "$(fan_list "$n")" --rsh "$scratch/fan_rsh" true)
        kib+=("$(fan_memory "$n")") || trouble "$n hosts: $(head -n 1 "$scratch/err")"
    done
    exec 4>&-
    $with "$build/bench/interleave" "$rounds:${BENCH_SECONDS:-12}" 60 "${run[@]}" > "$out" || trouble 'a job failed'
    times "$out"
    read -r -a cpu <<< "$(awk '{ print $9 }' "$out" | tr '\n' ' ')"
    printf '  hvdrun alone, with 64, 128 and 256 hosts: %s ms of processor time, %s KiB at most\n' "${cpu[*]}" "${kib[*]}"
    [ "${#cpu[@]}" = 3 ] && [ -n "${kib[0]}" ] && [ -n "${kib[1]}" ] && [ -n "${kib[2]}" ] || return 0
    fan_cost 'processor time' ' ms' '' "${cpu[@]}"
    fan_cost memory ' KiB' 50 "${kib[@]}"
}

descendants() { # PID: all processes below it
    local child
    # shellcheck disable=SC2013 # words are what that file holds
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
}

part_memory() {
    local np=64 pid up=0 own=1 child name kib threads
    title "hvdrun itself while $np workers run"
    mkfifo "$scratch/out" "$scratch/go"
    exec 4<> "$scratch/go"
    # shellcheck disable=SC2016 # expanded by each worker
    "$build/hvdrun" -np "$np" sh -c 'echo up; read -r _ < "$1"' sh "$scratch/go" > "$scratch/out" 2> "$scratch/err" &
    pid=$!
    exec 3< "$scratch/out"
    while [ "$up" -lt "$np" ] && read -r -t 20 -u 3 _; do up=$((up + 1)); done
    if [ "$up" -lt "$np" ]; then
        trouble "$up of $np workers came up: $(head -n 1 "$scratch/err")"
        kill "$pid" 2>/dev/null || :
    else
        kib=$(awk '/^VmHWM/ { print $2 }' "/proc/$pid/status")
        threads=$(awk '/^Threads/ { print $2 }' "/proc/$pid/status")
        for child in $(descendants "$pid"); do
            read -r name < "/proc/$child/comm" || continue
            case $name in hvdrun* | hvdagent* | hvd-*) own=$((own + 1)) ;; esac
        done
        goal "peak resident" "$(awk -v k="$kib" 'BEGIN { printf "%.1f", k / 1024 }')" 8 ' MiB'
        goal "threads of hvdrun" "$threads" 1 ''
        goal "processes of ours (hvdrun, session, guard)" "$own" 3 ''
    fi
    for _ in $(seq "$np"); do echo >&4; done
    wait "$pid" || trouble "hvdrun exits with $?: $(head -n 1 "$scratch/err")"
    exec 3<&- 4>&-
}

