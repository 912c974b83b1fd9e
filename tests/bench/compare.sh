# shellcheck shell=bash disable=SC2154
# For the parts of run.sh that set the engine beside other libraries: runs each of them in turn, keeps their lines of JSON, prints a
# table of medians, and says of each row with a goal whether it is met (figures.awk).
#
# A set is one table: its lines are in $lines. A name is one column: hvd_arena, hvd_malloc, hvd_persistent, hvd_shared (ours; the
# last two with memory of the arena), hvd_openmpi (OpenMPI under hvdrun), mpich, openmpi, mpich5, openmpi5, gloo (peers), floor, floor_malloc,
# floor_readv, floor_wire, floor_wire_malloc, exchange.
# Names python_... and c10d_... are programs of python.sh and torch.sh, which print lines for several columns.

limit_ms=${BENCH_LIMIT_MS:-120}
fewest=9 # runs of a command
[ -z "${BENCH_SECONDS:-}" ] || fewest=1
kept=${BENCH_KEEP:-$scratch/lines}
longest=20 # seconds that one run of one of them may take; QUICK has no runs that take long, but peers that hang
[ -z "${QUICK:-}" ] || longest=8
place=()   # how a command gets to where it runs: empty here, on a host: hosts.sh exec head
where=()   # what hvdrun is told of ranks and hosts
network=lo # the interface that gloo takes
python=${PYTHON:-/usr/bin/python3}
run_id=$(date +%s)
mkdir -p "$kept"

have_torch() {
    "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2> /dev/null
}

# Ranks of the next runs: all here, or HOSTS x EACH.
on_one_host() { # RANKS
    ranks=$1 hosts_here=1 each=$1 network=lo place=()
    where=(-np "$1")
}

on_hosts() { # HOSTS EACH
    ranks=$(($1 * $2)) hosts_here=$1 each=$2 network=eth0
    place=("$here/../hosts/hosts.sh" exec head)
    where=(-H "$(host_list "$1" "$2")")
}

# Begins a table: its file of lines, its columns (ours, and all the peers), and what is already known of them.
begin_set() { # SET NAME...
    lines=$kept/$1
    shift
    names=("$@")
    said=''
    declare -gA ended=()
    touch "$lines"
    for mpi in mpich openmpi mpich5 openmpi5; do
        [ -x "$build/bench/mpi_ops.$mpi" ] || lacks "$mpi"
    done
    have_torch || lacks gloo
}

lacks() { # NAME: it is not installed
    ended[$1]=2
    said="$said $1:missing"
}

# One run of one implementation. OP is one of hvd_bench's, or resnet50; BYTES a list.
run_one() { # NAME OP BYTES TURN
    local command=() launcher op=$2 before status=0
    case $1.$2 in
    hvd_arena.count) command=("$build/hvdrun" "${where[@]}" "$build/bench/waiting") ;;
    mpich*.count | openmpi*.count)
        mpi_launcher "$1" "$ranks"
        command=("${launcher[@]}" "$build/bench/mpi_waiting.$1")
        ;;
    *) op_command "$1" "$2" "$3" ;;
    esac
    exchange=${exchange:-$(measure_exchange)}
    rm -f "$scratch/printed" # a peer that was killed may leave a process that writes there
    # shellcheck disable=SC2086 # $with is a command and its arguments
    "${place[@]}" $with timeout -k 2 "$longest" "${command[@]}" > "$scratch/printed" 2> "$scratch/err" < /dev/null || status=$?
    before=$exchange exchange=$(measure_exchange)
    keep_lines "$1" "$2" "$4" "$(exchange_during "$before" "$exchange")"
    return "$status"
}

# How far the processors are from each other now, in ns (core_exchange.c). On a virtual machine that changes, and all figures with it.
measure_exchange() {
    # shellcheck disable=SC2086 # a command and its arguments
    $with "$build/bench/core_exchange"
}

# 0: the figure changed meanwhile, by more than half. Empty: there is one processor.
exchange_during() { # BEFORE AFTER
    [ -z "$1" ] || [ -z "$2" ] || echo $(($1 * 2 <= $2 * 3 && $2 * 2 <= $1 * 3 ? ($1 + $2) / 2 : 0))
}

op_command() { # NAME OP BYTES: into run_one's $command
    case $1 in
    hvd_openmpi) command=("$build/hvdrun" "${where[@]}" "$build/bench/mpi_ops.openmpi" "$1" "$limit_ms" "$op" "$3") ;;
    hvd_*)
        command=("$build/hvdrun" "${where[@]}")
        [ "$1" != hvd_encrypt ] || command+=(--encrypt)
        command+=("$build/bench/hvd_bench" --json --limit-ms "$limit_ms")
        case $1 in
        hvd_malloc) command+=(--buffer malloc) ;;
        hvd_persistent | hvd_shared) command+=(--buffer arena) op=${1#hvd_} ;;
        *) command+=(--buffer arena) ;;
        esac
        if [ "$op" = resnet50 ]; then command+=(--model resnet50); else command+=(--op "$op" --bytes "$3"); fi
        ;;
    mpich* | openmpi*)
        if [ "$hosts_here" = 1 ]; then mpi_launcher "$1" "$ranks"; else mpi_launcher "$1" "$ranks" "$hosts_here" "$each"; fi
        command=("${launcher[@]}" "$build/bench/mpi_ops.$1" "$1" "$limit_ms" "$op")
        [ "$op" = resnet50 ] || command+=("$3")
        ;;
    gloo)
        command=(env "GLOO_SOCKET_IFNAME=$network" "$build/hvdrun" "${where[@]}" "$python" "$build/bench/torch_gloo.py" "$limit_ms")
        if [ "$op" = resnet50 ]; then command+=(resnet50 "$("$build/bench/hvd_bench" --list)"); else command+=("$3"); fi
        ;;
    floor) command=("$build/bench/shm_floor" "$ranks" "$3") ;;
    floor_malloc) command=("$build/bench/shm_floor" "$ranks" "$3" private) ;;
    floor_readv) command=("$build/bench/shm_floor" "$ranks" "$3" readv) ;;
    floor_wire) command=("$build/hvdrun" "${where[@]}" "$build/bench/wire_floor" "$3") ;;
    floor_wire_malloc) command=("$build/hvdrun" "${where[@]}" "$build/bench/wire_floor" "$3" private) ;;
    exchange) command=("$build/hvdrun" "${where[@]}" "$build/bench/exchange_floor") ;; # prints floor, too
    python_*) python_command "$1" "$op" "$3" ;;
    c10d_*) torch_command "$1" "$op" "$3" ;;
    esac
}

keep_lines() { # NAME OP TURN EXCHANGE; of a NAME that prints lines for several columns each has its own
    local name='' exchange=${4:+\"exchange_ns\":$4,}
    case $1 in exchange | python_* | c10d_*) ;; *) name="\"name\":\"$1\"," ;; esac
    sed -E "s/^\{/{$name\"row\":\"$2\",\"turn\":\"$run_id.$3\",$exchange/" "$scratch/printed" >> "$lines"
}

# One that did not end well: twice, and it is not run again in this table; what it printed counts.
misfortune() { # NAME STATUS
    local why=failed said_in_full
    ended[$1]=$((${ended[$1]:-0} + 1))
    case $2 in 124 | 137) why=hung said_in_full="ended after $longest s" ;; *) said_in_full=$(grep -m 1 . "$scratch/err") || said_in_full="fails with $2" ;; esac
    case " $said " in *" $1:"*) ;; *) said="$said $1:$why" ;; esac
    case $1 in
    hvd_* | floor | floor_malloc | floor_wire | floor_wire_malloc | python_* | c10d_*) trouble "$1: $said_in_full" ;;
    *) echo "  $1: $said_in_full" ;;
    esac
}

# All of them, one after the other, beginning with another one each time, for about SECONDS. There are $rounds turns at most, and enough for
# $fewest runs that can be compared. Gloo, far behind and slow to start, takes part in every third turn. The column exchange has 4 B only.
take_turns() { # SECONDS OP BYTES
    local seconds=${BENCH_SECONDS:-$1} turn i name status since=$SECONDS before took exchange=''
    [ -n "$3" ] || return 0
    for turn in $(seq "$rounds"); do
        before=$SECONDS
        for i in $(seq 0 $((${#names[@]} - 1))); do
            name=${names[$(((turn - 1 + i) % ${#names[@]}))]}
            [ "${ended[$name]:-0}" -lt 2 ] || continue
            [ "$name" != gloo ] || [ $((turn % 3)) = 1 ] || continue
            [ "$name" != exchange ] || [ "${3%%,*}" = 4 ] || continue
            status=0
            run_one "$name" "$2" "$3" "$turn" || status=$?
            [ "$status" = 0 ] || misfortune "$name" "$status"
        done
        took=$((SECONDS - before))
        progress "$2 of $3: turn $turn, $((SECONDS - since)) of $seconds s"
        [ "$turn" -lt "$fewest" ] || [ $((SECONDS - since + took)) -le "$seconds" ] || [ "$(kept_runs "$2 ${3##*,}")" -lt "$fewest" ] || break
    done
    progress ''
}

kept_runs() { # ROW: how many of our own can be compared
    figures -v what=kept -v row="$1" -v ours="${names[0]}"
}

figures() { # -v NAME=VALUE ...: of the set at hand
    LC_ALL=C awk "$@" -f "$here/figures.awk" "$lines"
}

table() {
    printf '\n'
    figures -v what=table -v names="${names[*]}" -v said="$said"
}

cell() { # ROW NAME: its median, empty when there is none
    figures -v what=value -v row="$1" -v ours="$2"
}

size_text() { # BYTES
    if [ "$1" -ge 1048576 ]; then
        echo "$(($1 / 1048576)) MiB"
    elif [ "$1" -ge 1024 ]; then
        echo "$(($1 / 1024)) KiB"
    else
        echo "$1 B"
    fi
}

# Rows of allreduces, from lines of: BYTES NAME LIMIT [SHARE]. A dash is none.
allreduce_rows() { # WHERE
    local bytes name limit share floors
    while read -r bytes name limit share; do
        floors=floor
        case $name in hvd_malloc) floors=floor_malloc,floor_readv ;; esac
        [ "$hosts_here" = 1 ] || case $name.$each in hvd_malloc.1) floors=floor_wire ;; hvd_malloc.*) floors=floor_wire_malloc ;; *) floors=floor_wire ;; esac
        [ "$hosts_here" = 1 ] || [ "$bytes" -gt 65536 ] || floors=none # hand-overs, not the wire
        row "$(size_text "$bytes"), $1, ${name#hvd_}" allreduce "$bytes" "$name" "${limit/#-/}" "${share/#-/}" "$floors"
    done
}

# A row of the goals, of the set at hand. Left out: a size that was not to be run. PEERS: other columns than those of all peers.
row() { # WHAT OP BYTES NAME LIMIT [SHARE [FLOORS [PEERS]]]
    grep -q "\"row\":\"$2\".*\"bytes\":$3," "$lines" || return 0
    count_goal "$(figures -v what=row -v label="$1" -v row="$2 $3" -v ours="$4" -v limit="$5" -v share="${6:-}" -v floors="${7:-floor}" \
        -v peers="${8:-}")"
}

# A row whose goal is that NAME takes at most LIMIT us more than BASE.
row_over() { # WHAT OP BYTES NAME BASE LIMIT
    grep -q "\"row\":\"$2\".*\"bytes\":$3," "$lines" || return 0
    count_goal "$(figures -v what=over -v label="$1" -v row="$2 $3" -v ours="$4" -v peers="$5" -v limit="$6")"
}

# Of sizes only those whose buffers RANKS ranks can have, with a copy of each in shared memory, twice over.
that_fit() { # RANKS BYTES...
    local n=$1 kib size list=''
    kib=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
    shift
    for size; do [ $((size / 1024 * n * 4)) -gt "$kib" ] || list=$list,$size; done
    echo "${list#,}"
}

# Those of a list of sizes that are more than FROM and at most TO.
between() { # FROM TO BYTES...
    local from=$1 to=$2 size
    shift 2
    for size; do [ "$size" -le "$from" ] || [ "$size" -gt "$to" ] || printf '%s ' "$size"; done
}

# A whole table of allreduces: small sizes, larger ones and the largest have each a time of their own, so that small ones have many turns.
allreduce_set() { # SECONDS SECONDS SECONDS BYTES...
    local seconds=("$1" "$2" "$3") limits=(0 1048576 67108864 17179869184) i
    shift 3
    for i in 0 1 2; do
        # shellcheck disable=SC2046 # words
        take_turns "${seconds[i]}" allreduce "$(that_fit "$ranks" $(between "${limits[i]}" "${limits[i + 1]}" "$@"))"
    done
    table
}
