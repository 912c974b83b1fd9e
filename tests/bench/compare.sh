# shellcheck shell=bash disable=SC2154
# For the parts of run.sh that set the engine beside other libraries: runs each of them in turn, keeps their lines of JSON, prints a
# table of medians, and says of each row with a goal whether it is met.
#
# A set is one table: its lines are in $lines. A name is one column: hvd_arena, hvd_malloc (ours), mpich, openmpi, gloo (peers),
# floor, floor_malloc.

limit_ms=${BENCH_LIMIT_MS:-100}
kept=${BENCH_KEEP:-$scratch/lines}
longest=30 # seconds that one run of one of them may take
turns=$(((rounds + 7) / 8))
place=()    # how a command gets to where it runs: empty here, on a host: hosts.sh exec head
where=()    # what hvdrun is told of ranks and hosts
network=lo  # the interface that gloo takes
mkdir -p "$kept"

have_torch() {
    /usr/bin/python3 -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2> /dev/null
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

# The columns: ours, and the peers that are installed. Into $names.
columns() { # OURS...
    names=("$@")
    [ ! -x "$build/bench/mpi_allreduce.mpich" ] || names+=(mpich)
    [ ! -x "$build/bench/mpi_allreduce.openmpi" ] || names+=(openmpi)
    ! have_torch || names+=(gloo)
}

# One run of one implementation. WHAT is sizes in bytes, or resnet50.
run_one() { # NAME WHAT
    local command=() launcher
    case $1 in
    hvd_*)
        command=("$build/hvdrun" "${where[@]}" "$build/bench/hvd_bench" --json --limit-ms "$limit_ms" --buffer "${1#hvd_}")
        if [ "$2" = resnet50 ]; then command+=(--model resnet50); else command+=(--bytes "$2"); fi
        ;;
    mpich | openmpi)
        if [ "$hosts_here" = 1 ]; then mpi_launcher "$1" "$ranks"; else mpi_launcher "$1" "$ranks" "$hosts_here" "$each"; fi
        command=("${launcher[@]}" "$build/bench/mpi_allreduce.$1" "$1" "$2" "$limit_ms")
        ;;
    gloo)
        command=(env "GLOO_SOCKET_IFNAME=$network" "$build/hvdrun" "${where[@]}" /usr/bin/python3 "$build/bench/torch_gloo.py" "$limit_ms" "$2")
        [ "$2" != resnet50 ] || command+=("$("$build/bench/hvd_bench" --model resnet50 --list)")
        ;;
    floor | floor_malloc)
        command=("$build/bench/shm_floor" "$ranks" "${2/#resnet50/102228128}")
        [ "$1" = floor ] || command+=(private)
        ;;
    esac
    # shellcheck disable=SC2086 # $with is a command and its arguments
    "${place[@]}" $with timeout -k 2 "$longest" "${command[@]}" 2> "$scratch/err" < /dev/null |
        sed -E "s/(\"buffer\":\")(arena|malloc)\"/\1$1\"/; s/\"op\":\"resnet50\"/\"op\":\"allreduce\"/"
}

# All of them, `turns` times, beginning with another one each time. A peer that was ended twice is not run again; what it printed
# before counts.
take_turns() { # SET WHAT NAME...
    local what=$2 turn i name why status
    local -A ended=()
    lines=$kept/$1
    shift 2
    touch "$lines"
    for turn in $(seq "$turns"); do
        for i in $(seq 0 $(($# - 1))); do
            name=${*:$(((turn - 1 + i) % $# + 1)):1}
            [ "${ended[$name]:-0}" -lt 2 ] || continue
            status=0
            run_one "$name" "$what" >> "$lines" || status=$?
            [ "$status" != 0 ] || continue
            ended[$name]=$((${ended[$name]:-0} + 1))
            why=$(grep -m 1 . "$scratch/err") || why="fails with $status"
            case $status in 124 | 137) why="ended after $longest s (what it printed counts)" ;; esac
            case $name in hvd_* | floor*) trouble "$name, turn $turn: $why" ;; *) echo "  $name, turn $turn: $why" ;; esac
        done
    done
}

# BYTES NAME MEDIAN RUNS WORST, a line each, of the lines of a set: the median over its runs.
cells() { # FILE
    sed -nE 's/.*"bytes":([0-9]+).*"buffer":"([a-z_]+)".*"median_us":([0-9.]+).*"max_us":([0-9.]+).*/\1 \2 \3 \4/p' "$1" | sort -k1,1n -k2,2 -k3,3n |
        awk '{ key = $1 " " $2; if (key != last && n) flush(); last = key; v[++n] = $3; if ($4 > worst) worst = $4 }
            function flush() { printf "%s %.3f %d %.2f\n", last, (v[int((n + 1) / 2)] + v[int((n + 2) / 2)]) / 2, n, worst; n = worst = 0 }
            END { if (n) flush() }'
}

cell() { # BYTES NAME: its median, empty when there is none
    cells "$lines" | awk -v b="$1" -v n="$2" '$1 == b && $2 == n { print $3 }'
}

best_peer() { # BYTES: its name and median
    cells "$lines" | awk -v b="$1" '$1 == b && $2 ~ /^(mpich|openmpi|gloo)$/ && (!v || $3 < v) { v = $3; n = $2 } END { if (v) print n, v }'
}

# A row per size, a column per name; at the end the slowest of all our iterations, where a wake-up that was lost would show.
table() { # NAME...
    cells "$lines" | awk -v names="$*" '
        { if (!($1 in seen)) { seen[$1] = 1; size[++sizes] = $1 } value[$1, $2] = $3; if ($2 ~ /^hvd_/ && $5 > worst[$1]) worst[$1] = $5 }
        END {
            n = split(names, name, " ")
            printf "  %11s", "bytes"
            for (i = 1; i <= n; i++) printf " %12s", name[i]
            printf " %10s %10s %12s\n", "hvd/peer", "hvd/floor", "worst hvd"
            for (s = 1; s <= sizes; s++) {
                printf "  %11d", size[s]; hvd = peer = bound = 0
                for (i = 1; i <= n; i++) {
                    v = value[size[s], name[i]]
                    if (!v) { printf " %12s", "-"; continue }
                    printf " %12.2f", v
                    if (name[i] ~ /^hvd_/) { if (!hvd || v < hvd) hvd = v }
                    else if (name[i] == "floor") bound = v
                    else if (name[i] ~ /^(mpich|openmpi|gloo)$/ && (!peer || v < peer)) peer = v
                }
                printf " %10s %10s %12.2f\n", hvd && peer ? sprintf("%.2f", hvd / peer) : "-", hvd && bound ? sprintf("%.2f", hvd / bound) : "-", worst[size[s]]
            }
        }'
}

# One row of the goals: OURS at most LIMIT of PEER (LIMIT -: no such goal), and at least SHARE of what the floor allows. Without SHARE, 0.85
# of the floor is enough instead of the peer's part.
verdict() { # WHAT OURS PEER PEER_NAME LIMIT FLOOR SHARE
    local said
    goals=$((goals + 1))
    said=$(awk -v ours="$2" -v peer="$3" -v name="$4" -v limit="$5" -v bound="$6" -v share="$7" 'BEGIN {
        if (!ours) { print "not measured: NOT met"; exit }
        near = bound ? bound / ours : 0
        by_peer = limit != "-" && peer && ours / peer <= limit
        by_floor = near >= (share ? share : 0.85)
        if (limit != "-") text = peer ? sprintf("%.2f of %s (goal %s)", ours / peer, name, limit) : "no peer"
        if (bound) text = text sprintf("%s%.2f of the floor%s", text ? ", " : "", near, share ? " (goal " share ")" : "")
        met = limit == "-" ? by_floor : share ? by_floor && (by_peer || !peer) : by_peer || by_floor
        print text ": " (met ? "met" : "NOT met") }')
    printf '  %-36s %s\n' "$1" "$said"
    case $said in *NOT*) ;; *) goals_met=$((goals_met + 1)) ;; esac
}

# The same of the set at hand. Left out: a size that was not run.
row() { # WHAT BYTES NAME LIMIT [SHARE [FLOOR_NAME]]
    local peer peer_name=''
    read -r peer_name peer <<< "$(best_peer "$2")" || :
    [ -n "$peer_name$(cell "$2" "$3")" ] || { printf '  %-36s left out\n' "$1"; return 0; }
    verdict "$1" "$(cell "$2" "$3")" "${peer:-}" "${peer_name:-}" "$4" "$(cell "$2" "${6:-floor}")" "${5:-}"
}

# Of sizes only those whose buffers RANKS ranks can have, with a copy of each in shared memory, twice over.
that_fit() { # RANKS BYTES...
    local n=$1 kib size list=''
    kib=$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)
    shift
    for size; do [ $((size / 1024 * n * 4)) -gt "$kib" ] || list=$list,$size; done
    echo "${list#,}"
}
