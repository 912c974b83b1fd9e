#!/bin/bash
# The figures that the project promises, beside its peers and the floors, in one interleaved run.
#
#   tests/bench/run.sh BUILD                  (make bench)
#   BENCH=launch,ssh,memory,allreduce,gloo,mpi,pmix   which parts; all of these by default. mpi_long is one more: it takes long
#   BENCH_ROUNDS=15                           runs of each command
#   BENCH_WITH='chrt -r 20'                   starts the commands of `launch` with it: on a busy machine this (as root) keeps the
#                                             others' programs from being measured
#
# launch     `true` on np local ranks, from cold command to exit: hvdrun, MPICH's hydra, OpenMPI's mpirun, and the floor:
#            a program that spawns np times and waits
# ssh        16 hosts (namespaces with an sshd each; root): hvdrun, and the floor: libssh2's connect, authentication and exec
# memory     what hvdrun itself takes while 64 workers run
# mpi        a program of MPI_Init and MPI_Finalize: the whole command, and the time inside, beside OpenMPI's mpirun and MPICH's hydra; here
#            and on two hosts
# mpi_long   50 OpenMPI jobs of 64 ranks: does one of them hang?
# pmix       PMIx clients that exchange an address each, here beside mpirun, and on 16 hosts: time, messages and bytes a host
# allreduce  hvd_bench, the same loop over MPICH and OpenMPI, and the floor: one pass over buffers in shared memory
# gloo       clients with the protocol of Horovod's Gloo controller, 64 on each of 4 hosts (namespaces; root) whose links are shaped
#            to 1 Gbit/s: hvdrun's rendezvous, and a single server for all on the first host. BENCH_GLOO=16: so many on each host
#
# A peer that is not installed is named and left out, one that hangs or fails is named. Exit 1 when one of ours did not run; a goal not met is printed, no more.
set -eu -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
parts=${BENCH:-launch,ssh,memory,allreduce,gloo,mpi,pmix}
rounds=${BENCH_ROUNDS:-15}
with=${BENCH_WITH:-}
hosts=16
scratch=$(mktemp -d)
mkdir "$scratch/shared"
failed=0
goals=0
goals_met=0

case $rounds in '' | *[!0-9]* | 0) echo "run.sh: BENCH_ROUNDS is a number from 1, not '$rounds'" >&2; exit 2 ;; esac
for part in ${parts//,/ }; do
    case $part in
    launch | ssh | memory | allreduce | gloo | mpi | mpi_long | pmix) ;;
    *) echo "run.sh: BENCH is a list of launch, ssh, memory, allreduce, gloo, mpi, mpi_long, pmix; not '$part'" >&2; exit 2 ;;
    esac
done

# shellcheck disable=SC2317 # called by the trap
clean_up() {
    [ ! -e "$scratch/hosts" ] || HOSTS_DIR=$scratch/hosts "$here/../hosts/hosts.sh" down
    rm -rf "$scratch"
}
trap clean_up EXIT

have() {
    command -v "$1" > /dev/null
}

wanted() { # PART
    case ",$parts," in *",$1,"*) return 0 ;; esac
    return 1
}

trouble() {
    echo "  FAILED: $*"
    failed=1
}

goal() { # WHAT VALUE LIMIT UNIT: a goal is that VALUE is at most LIMIT
    goals=$((goals + 1))
    if awk -v v="$2" -v l="$3" 'BEGIN { exit !(v <= l) }'; then
        goals_met=$((goals_met + 1))
        printf '  %-44s %8s%s   goal %s: met\n' "$1" "$2" "$4" "$3"
    else
        printf '  %-44s %8s%s   goal %s: NOT met\n' "$1" "$2" "$4" "$3"
    fi
}

median_of() { # LABEL FILE: its median; fails when it has none
    awk -v l="$1" '$1 == l && $5 > 0 { print $2; found = 1 } END { exit !found }' "$2"
}

ratio() { # LABEL LABEL FILE; empty when one of them has no figure
    local one two
    one=$(median_of "$1" "$3") && two=$(median_of "$2" "$3") || return 0
    awk -v a="$one" -v b="$two" 'BEGIN { printf "%.2f", a / b }'
}

# Of what interleave printed: one of ours without a figure is trouble; a peer that hangs or fails is said, and the rest goes on.
judge() { # FILE
    local label good failures hung
    [ -s "$1" ] || trouble "nothing was measured"
    while read -r label _ _ _ good failures hung _; do
        [ "$good" = 0 ] || [ "$((failures + hung))" != 0 ] || continue
        case $label in
        hvdrun | floor) [ "$good" != 0 ] || trouble "$label never succeeded: $failures failed, $hung hung" ;;
        *) echo "  $label hung in $hung and failed in $failures of $((good + failures + hung)) runs" ;;
        esac
    done < "$1"
}

times() { # FILE: what interleave printed
    printf '  %-12s %10s %10s %10s %10s %6s %7s %6s\n' '' 'median ms' min max 'cpu ms' runs failed hung
    awk '{ printf "  %-12s %10.2f %10.2f %10.2f %10.2f %6d %7d %6d\n", $1, $2, $3, $4, $8, $5, $6, $7 }' "$1"
}

goal_ratio() { # LABEL LABEL FILE LIMIT
    local value
    value=$(ratio "$1" "$2" "$3")
    [ -z "$value" ] || goal "$1 / $2" "$value" "$4" ''
}

mpirun=(mpirun.openmpi --oversubscribe)
[ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)

# shellcheck source=tests/bench/rendezvous.sh
. "$here/rendezvous.sh"

launch() {
    local np out=$scratch/launch run
    for np in 2 8 64; do
        run=(-- hvdrun "$build/hvdrun" -np "$np" true)
        ! have mpiexec.hydra || run+=(-- hydra mpiexec.hydra -n "$np" true)
        ! have mpirun.openmpi || run+=(-- openmpi "${mpirun[@]}" -np "$np" true)
        run+=(-- floor "$build/bench/spawn_floor" "$np" true)
        printf '\nlaunch of true, np %d\n' "$np"
        $with "$build/bench/interleave" "$rounds" 10 "${run[@]}" > "$out" || : # judge says what never succeeded
        times "$out"
        judge "$out"
        goal_ratio hvdrun hydra "$out" 1.0
        [ "$np" != 64 ] || goal_ratio hvdrun floor "$out" 1.5
    done
}

ssh_start() {
    local hosts_sh=$here/../hosts/hosts.sh out=$scratch/ssh k names=()
    printf '\nstart on %d hosts over SSH\n' "$hosts"
    [ -x "$build/bench/ssh_floor" ] || { echo "  left out: libssh2 is not installed"; return; }
    hosts_up "$hosts" || return 0
    for k in $(seq 1 "$hosts"); do names+=("node$k"); done
    "$hosts_sh" exec head "$build/bench/interleave" "$rounds" 30 \
        -- hvdrun "$build/hvdrun" -np "$hosts" -H "$(host_list "$hosts" 1)" true \
        -- floor "$build/bench/ssh_floor" root /root/.ssh/id_ed25519 true "${names[@]}" > "$out" || :
    times "$out"
    judge "$out"
    goal_ratio hvdrun floor "$out" 1.5
    "$hosts_sh" down
}

descendants() { # PID: all processes below it
    local child
    # shellcheck disable=SC2013 # words are what that file holds
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
}

memory() {
    local np=64 pid up=0 own=1 child name kib threads
    printf '\nhvdrun itself while %d workers run\n' "$np"
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

# One run of one implementation: a line of JSON per size, with its name in place of the buffer.
allreduce_run() { # NAME RANKS SIZES
    case $1 in
    hvd_*) timeout 120 "$build/hvdrun" -np "$2" "$build/bench/hvd_bench" --json --bytes "$3" --buffer "${1#hvd_}" |
        sed "s/\"buffer\":\"[a-z]*\"/\"buffer\":\"$1\"/" ;;
    mpich) timeout 120 mpiexec.hydra -n "$2" "$build/bench/mpi_allreduce.mpich" mpich "$3" ;;
    openmpi) timeout 120 "${mpirun[@]}" -np "$2" "$build/bench/mpi_allreduce.openmpi" openmpi "$3" ;;
    floor) timeout 120 "$build/bench/shm_floor" "$2" "$3" ;;
    esac 2> "$scratch/err"
}

# Medians over the rounds of each size and implementation: a row per size, a column per implementation; at the end the slowest
# of all our iterations, where a wake-up that was lost would show.
allreduce_table() { # FILE NAME...
    local file=$1
    shift
    sed -E 's/.*"bytes":([0-9]+).*"buffer":"([a-z_]+)".*"median_us":([0-9.]+).*"max_us":([0-9.]+).*/\1 \2 \3 \4/' "$file" | sort -k1,1n -k2,2 -k3,3n |
        awk -v names="$*" '
            { key = $1 " " $2; if (!($1 in seen)) { seen[$1] = 1; size[++sizes] = $1 } count[key]++; value[key, count[key]] = $3
              if ($2 ~ /^hvd_/ && $4 > worst[$1]) worst[$1] = $4 }
            END {
                n = split(names, name, " ")
                printf "  %12s", "bytes"
                for (i = 1; i <= n; i++) printf " %12s", name[i]
                printf " %14s %14s %12s\n", "best hvd/peer", "best hvd/floor", "worst hvd"
                for (s = 1; s <= sizes; s++) {
                    printf "  %12d", size[s]; hvd = peer = bound = 0
                    for (i = 1; i <= n; i++) {
                        key = size[s] " " name[i]
                        if (!count[key]) { printf " %12s", "-"; continue }
                        v = value[key, int((count[key] + 1) / 2)]
                        printf " %12.2f", v
                        if (name[i] ~ /^hvd_/) { if (!hvd || v < hvd) hvd = v }
                        else if (name[i] == "floor") bound = v
                        else if (!peer || v < peer) peer = v
                    }
                    printf " %14s %14s %12.2f\n", hvd && peer ? sprintf("%.2f", hvd / peer) : "-",
                        hvd && bound ? sprintf("%.2f", hvd / bound) : "-", worst[size[s]]
                }
            }'
}

allreduce() {
    local ranks round name why names=(hvd_arena hvd_malloc) sizes=4,4096,65536,1048576,16777216,67108864 turns=$(((rounds + 4) / 5))
    [ ! -x "$build/bench/mpi_allreduce.mpich" ] || names+=(mpich)
    [ ! -x "$build/bench/mpi_allreduce.openmpi" ] || names+=(openmpi)
    names+=(floor)
    for ranks in 2 4; do
        printf '\nallreduce, f32 sum in place, %d ranks on one host: microseconds, medians of %d runs (no goal yet)\n' "$ranks" "$turns"
        : > "$scratch/lines"
        for round in $(seq "$turns"); do
            for name in "${names[@]}"; do
                allreduce_run "$name" "$ranks" "$sizes" >> "$scratch/lines" && continue
                why="$name, round $round: $(grep -m 1 . "$scratch/err" || echo 'timed out')"
                case $name in mpich | openmpi) echo "  $why" ;; *) trouble "$why" ;; esac
            done
        done
        allreduce_table "$scratch/lines" "${names[@]}"
    done
}

# One run of the clients: $scratch/gloo.out and .err; prints the time from when the last has begun until the last has met all, in ms.
gloo_clients() { # HOSTS_SH LIST ARGUMENTS of hvdrun
    local hosts_sh=$1 list=$2
    shift 2
    timeout 300 "$hosts_sh" exec head "$build/hvdrun" --log-level debug -H "$list" "$@" "$build/tests/gloo-client" --own \
        > "$scratch/gloo.out" 2> "$scratch/gloo.err" < /dev/null || return 1
    awk '/ met all: / { begin = $(NF - 1); end = begin + $5; if (begin > b) b = begin; if (end > e) e = end; n++ } END { if (!n) exit 1; printf "%.0f\n", (e - b) * 1000 }' "$scratch/gloo.out"
}

# What the busiest link carries, in ms at 1 Gbit/s; of the central server's bytes three quarters go to other hosts. Uses $said and gloo.ours.
gloo_wire() {
    local most central
    most=$(sed -n 's/.* and \([0-9]*\) bytes sent to other hosts.*/\1/p' "$scratch/gloo.ours" | sort -n | tail -n 1)
    central=$(echo "$said" | sed -n 's/.* bytes \([0-9]*\) .*/\1/p')
    [ -n "$most" ] && [ -n "$central" ] || return 0
    goal "time on the busiest link: hvdrun / central" "$(awk -v a="$most" -v b="$central" 'BEGIN { printf "%.3f", a / (b * 0.75) }')" 0.10 ''
    awk -v a="$most" -v b="$central" 'BEGIN { printf "  (%.0f and %.0f ms at 1 Gbit/s; the rest of the time is processors: of the clients, and of who serves them)\n", a * 8e-6, b * 6e-6 }'
}

# What is left when a server costs nothing: the clients' own processor time on all processors, of what was just run. In ms.
gloo_floor() {
    awk -v n="$(nproc)" '/ met all: / { for (i = 2; i <= NF; i++) if ($i == "ms") sum += $(i - 1) } END { printf "%.0f\n", sum / n }' "$scratch/gloo.out"
}

gloo() {
    local floor
    local hosts_sh=$here/../hosts/hosts.sh each=${BENCH_GLOO:-64} k list='' ours='' peer port server said
    printf '\nGloo rendezvous, %d clients on 4 hosts, 1 Gbit/s each\n' $((4 * each))
    hosts_up 4 || return 0
    for k in 1 2 3 4; do
        list=$list,node$k:$each
        "$hosts_sh" exec "node$k" tc qdisc add dev eth0 root tbf rate 1gbit burst 256k latency 50ms
        "$hosts_sh" exec head tc qdisc add dev "v$k" root tbf rate 1gbit burst 256k latency 50ms
    done
    if ours=$(gloo_clients "$hosts_sh" "${list#,}"); then
        floor=$(gloo_floor)
        printf '  %-12s %8d ms, requests and server per host:\n' hvdrun "$ours"
        cp "$scratch/gloo.err" "$scratch/gloo.ours"
        sed -n 's/.*: \(node[0-9]*\): .*Gloo rendezvous: /    \1: /p; s/^\(node[0-9]*\): .*Gloo rendezvous: /    \1: /p' "$scratch/gloo.err"
    else
        trouble "the clients under hvdrun: $(grep -v debug "$scratch/gloo.err" | head -n 1)"
    fi
    mkfifo "$scratch/central.in" "$scratch/central.out"
    "$hosts_sh" exec node1 "$build/bench/gloo_central" 10.91.0.2 < "$scratch/central.in" > "$scratch/central.out" &
    server=$!
    exec 5> "$scratch/central.in" 6< "$scratch/central.out"
    read -r -t 20 port <&6 || { trouble "the central server did not start"; port=0; }
    if peer=$(gloo_clients "$hosts_sh" "${list#,}" -x HOROVOD_GLOO_RENDEZVOUS_ADDR=10.91.0.2 -x "HOROVOD_GLOO_RENDEZVOUS_PORT=$port"); then
        exec 5>&-
        read -r -t 20 said <&6 || said='nothing'
        printf '  %-12s %8d ms, %s\n' central "$peer" "$said"
        [ -z "$ours" ] || gloo_wire
        [ -z "$ours" ] || printf '  %-12s %8d ms, the clients alone on all processors: %s of central is the least that any server could reach here\n' \
            floor "$floor" "$(awk -v a="$floor" -v b="$peer" 'BEGIN { printf "%.2f", a / b }')"
        [ -z "$ours" ] || goal "hvdrun / central" "$(awk -v a="$ours" -v b="$peer" 'BEGIN { printf "%.2f", a / b }')" 0.10 ''
    else
        exec 5>&-
        echo "  central: $(grep -v debug "$scratch/gloo.err" | head -n 1)"
    fi
    wait "$server" || :
    exec 6<&-
    "$hosts_sh" down
}

first_line() { # COMMAND...
    "$@" 2>/dev/null | sed -n 1p || :
}

printf 'hvdrun %s, %d CPUs, Linux %s, load %s, %d rounds\n' "$("$build/hvdrun" --version | sed -n '1s/^hvdrun //p')" "$(nproc)" \
    "$(uname -r)" "$(cut -d' ' -f1 /proc/loadavg)" "$rounds"
if have mpiexec.hydra; then first_line mpiexec.hydra --version | sed 's/^.*$/peer: MPICH hydra/'; else echo "peer: MPICH is not installed (apt install mpich)"; fi
if have mpirun.openmpi; then echo "peer: OpenMPI $(first_line mpirun.openmpi --version)"; else echo "peer: OpenMPI is not installed (apt install openmpi-bin)"; fi
! wanted launch || launch
! wanted ssh || ssh_start
! wanted memory || memory
! wanted allreduce || allreduce
! wanted gloo || gloo
! wanted mpi || mpi
! wanted mpi_long || mpi_long
! wanted pmix || pmix
printf '\n%d of %d goals met\n' "$goals_met" "$goals"
exit "$failed"
