# shellcheck shell=bash disable=SC2154
# Parts of run.sh: programs that find each other through the rendezvous, beside the launchers of their own libraries.

# What rank 0 wrote into a file, a line a run: the median of a column; empty when nothing was written.
column_median() { # FILE COLUMN
    [ ! -s "$1" ] || awk -v c="$2" '{ print $c }' "$1" | sort -n | awk '{ v[NR] = $1 } END { printf "%.2f", (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

inside() { # DIRECTORY COLUMN WHAT: of every program that has left its figures there
    local file value
    printf '  %-28s' "$3, ms"
    for file in "$1"/*; do
        value=$(column_median "$file" "$2")
        printf ' %12s' "${file##*/} ${value:--}"
    done
    printf '\n'
}

goal_inside() { # DIRECTORY COLUMN WHAT PEER LIMIT
    local ours theirs
    ours=$(column_median "$1/hvdrun" "$2")
    theirs=$(column_median "$1/$4" "$2")
    [ -z "$ours" ] || [ -z "$theirs" ] ||
        goal "$3: hvdrun / $4" "$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')" "$5" ''
}

hosts_up() { # COUNT: also a directory that all of them share; else says why not
    local k why
    why=$("$here/../hosts/hosts.sh" can) || { echo "  left out: $why"; return 1; }
    export HOSTS_DIR=$scratch/hosts HOSTS_BIND="$build $scratch/shared${MPICH5:+ $MPICH5}${OPENMPI5:+ $OPENMPI5}"
    "$here/../hosts/hosts.sh" up "$1" > "$scratch/up" 2>&1 || { trouble "hosts.sh: $(tail -n 1 "$scratch/up")"; return 1; }
    for k in $(seq 1 "$1"); do
        "$here/../hosts/hosts.sh" exec "node$k" rm -f /root/.bashrc # else this machine's own would be timed as well
    done
}

host_list() { # COUNT SLOTS
    local k list=''
    for k in $(seq 1 "$1"); do list=$list,node$k:$2; done
    echo "${list#,}"
}

# Times PROGRAM on SIZE ranks, under hvdrun and under PEER; rank 0's own figures come into $figures.
beside() { # ROUNDS TIMEOUT PEER SIZE PROGRAM RUNNER... -- OURS... -- THEIRS...
    local turns=$1 limit=$2 peer=$3 size=$4 program=$5 runner=() command=() out=$scratch/beside
    shift 5
    while [ "$1" != -- ]; do runner+=("$1"); shift; done
    shift
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    shift
    figures=$scratch/shared/figures
    rm -rf "$figures"
    mkdir -p "$figures"
    set -- -- "$peer" "$@" "$program" "$figures/$peer" "$size"
    have "$3" || { echo "  $peer is not installed: no comparison"; set --; }
    "${runner[@]}" "$build/bench/interleave" "$turns" "$limit" \
        -- hvdrun "${command[@]}" "$program" "$figures/hvdrun" "$size" "$@" > "$out" || : # judge says what never succeeded
    times "$out"
    judge "$out"
    goal_ratio hvdrun "$peer" "$out" 1.0
}

mpi_pair() { # PEER WHAT: of beside's last run
    inside "$figures" 1 'inside MPI_Init'
    inside "$figures" 2 'MPI_Init to MPI_Finalize'
    goal_inside "$figures" 2 "MPI_Init to MPI_Finalize, $2" "$1" 1.0
}

# The launcher of a library and how it is told of hosts.
mpi_launcher() { # PEER SIZE [HOSTS SLOTS]: into $launcher
    local calm=() # keeps more ranks of MPICH than processors from real-time priority
    [ "$2" -le "$(nproc)" ] || ! have chrt || calm=(chrt -o 0)
    case $1 in
    openmpi*)
        # Hosts here are one machine: ranks that were bound would all have its first processor.
        launcher=("${mpirun[@]}" -np "$2")
        [ $# -lt 4 ] || launcher=(mpirun.openmpi "${mpirun[@]:2}" -np "$2" --bind-to none --mca plm_rsh_agent ssh --host "$(host_list "$3" "$4")")
        [ "$1" = openmpi ] || launcher[0]=$OPENMPI5/bin/mpirun
        ;;
    mpich*)
        launcher=("${calm[@]}" mpiexec.hydra -n "$2")
        [ "$1" = mpich ] || launcher=("${calm[@]}" "${MPICH5:-}/bin/mpiexec.hydra" -n "$2")
        [ $# -lt 4 ] || launcher+=(-launcher ssh -hosts "$(host_list "$3" "$4")")
        ;;
    esac
}

mpi_of() { # PEER
    local program=$build/bench/mpi_start.$1 launcher
    [ -x "$program" ] || { title "MPI_Init to MPI_Finalize, $1"; echo "  left out: its compiler is not installed (mpicc.$1)"; return; }
    title "MPI_Init to MPI_Finalize, $1, 8 ranks here"
    mpi_launcher "$1" 8
    beside "$rounds:6" 60 "$1" 8 "$program" -- "$build/hvdrun" -np 8 -- "${launcher[@]}"
    mpi_pair "$1" '8 ranks'
    if [ "$1" = openmpi ]; then
        title "MPI_Init to MPI_Finalize, $1, 64 ranks here (which mpirun does not always end: those of its runs are counted)"
        mpi_launcher "$1" 64
        beside $(((rounds + 7) / 8)) 60 "$1" 64 "$program" -- "$build/hvdrun" -np 64 -- "${launcher[@]}"
        mpi_pair "$1" '64 ranks'
    fi
    title "MPI_Init to MPI_Finalize, $1, 2 ranks on each of 2 hosts"
    hosts_up 2 || return 0
    mpi_launcher "$1" 4 2 2
    beside "$rounds:6" 60 "$1" 4 "$program" "$here/../hosts/hosts.sh" exec head \
        -- "$build/hvdrun" -H "$(host_list 2 2)" -- "${launcher[@]}"
    mpi_pair "$1" '2x2'
    "$here/../hosts/hosts.sh" down
}

part_mpi() {
    mpi_of openmpi
    mpi_of mpich
}

# Ranks that wait must let those run that they wait for.
part_crowded() {
    title 'allreduce of OpenMPI, 4 ranks on 2 processors, under hvdrun and under mpirun'
    [ -x "$build/bench/mpi_ops.openmpi" ] || { echo "  left out: OpenMPI's compiler is not installed"; return; }
    on_one_host 4
    # shellcheck disable=SC2034 # compare.sh's
    place=(taskset -c "$(first_processors 2)")
    begin_set crowded hvd_openmpi openmpi
    take_turns 6 allreduce 4
    table
    row '4 B, 4 ranks on 2 processors' allreduce 4 hvd_openmpi 2.0
}

first_processors() { # COUNT: of those that may be used here
    /usr/bin/python3 -c 'import os, sys; print(*sorted(os.sched_getaffinity(0))[:int(sys.argv[1])], sep=",")' "$1"
}

# No time is measured here: does it end at all, always?
part_mpi_long() {
    local out=$scratch/long hung good failures program=$build/bench/mpi_start.openmpi
    title '50 OpenMPI jobs of 64 ranks'
    [ -x "$program" ] || { echo "  left out: OpenMPI's compiler is not installed"; return; }
    "$build/bench/interleave" 50 100 -- hvdrun "$build/hvdrun" -np 64 "$program" /dev/null 64 > "$out" || :
    times "$out"
    read -r _ _ _ _ good failures hung _ < "$out"
    goal 'jobs of 50 that hung or failed' $((50 - good)) 0 ''
    [ "$((failures + hung))" = 0 ] || trouble "$hung hung, $failures failed"
}

# Messages and bytes that each host has sent, from the sessions' last words.
rendezvous_traffic() { # HOSTS RANKS_EACH
    local most mean bytes worst
    "$here/../hosts/hosts.sh" exec head timeout 100 "$build/hvdrun" --log-level debug -H "$(host_list "$1" "$2")" \
        "$build/bench/pmix_fence" "$scratch/shared/once" $(($1 * $2)) > "$scratch/out" 2>&1 || trouble "hvdrun: $(grep -m 1 hvdrun: "$scratch/out")"
    sed -nE 's/.*host [0-9]+ of [0-9]+ has sent ([0-9]+) messages, ([0-9]+) bytes for the rendezvous.*/\1 \2/p' "$scratch/out" > "$scratch/traffic"
    [ "$(wc -l < "$scratch/traffic")" = "$1" ] || { trouble "not all of $1 hosts told what they have sent"; return; }
    awk '{ m += $1; if ($1 > most) most = $1; b += $2; if ($2 > worst) worst = $2 }
        END { printf "%.2f %d %.0f %d\n", m / NR, most, b / NR, worst }' "$scratch/traffic" > "$scratch/sums"
    read -r mean most bytes worst < "$scratch/sums"
    printf '  %d hosts: messages a host: mean %s, most %d; bytes a host: mean %d, most %d\n' "$1" "$mean" "$most" "$bytes" "$worst"
    goal "$1 hosts: most messages of a host (radix + 1)" "$most" 3 ''
    goal "$1 hosts: messages a host, mean" "$mean" 2 ''
}

pmix_figures() { # PEER
    inside "$figures" 1 'Init'
    inside "$figures" 2 'Put, Commit, Fence'
    inside "$figures" 3 'Get of all others'
    inside "$figures" 4 'Init to Finalize'
    goal_inside "$figures" 4 'PMIx Init to Finalize' "$1" 1.0
}

part_pmix() {
    local program=$build/bench/pmix_fence launcher
    title 'PMIx Init, Put, Commit, Fence with data, Get of all others, Finalize: 64 clients here'
    [ -x "$program" ] || { echo "  left out: libpmix is not installed"; return; }
    mpi_launcher openmpi 64
    beside $(((rounds + 2) / 3)) 60 openmpi 64 "$program" -- "$build/hvdrun" -np 64 -- "${launcher[@]}"
    pmix_figures openmpi
    title "the same, 8 clients on each of $hosts hosts"
    hosts_up "$hosts" || return 0
    mpi_launcher openmpi $((hosts * 8)) "$hosts" 8
    beside $(((rounds + 7) / 8)) 100 openmpi $((hosts * 8)) "$program" "$here/../hosts/hosts.sh" exec head \
        -- "$build/hvdrun" -H "$(host_list "$hosts" 8)" -- "${launcher[@]}"
    pmix_figures openmpi
    rendezvous_traffic 4 8
    rendezvous_traffic "$hosts" 8
    "$here/../hosts/hosts.sh" down
}
