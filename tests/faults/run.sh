#!/bin/bash
# The fault matrix: each line of cells.txt is a job on namespaced hosts that meets one fault (or two) in one phase. Prints one TAP
# line a cell.
#
#   BUILD=build tests/faults/run.sh all|quick     quick takes the cells that cells.txt marks with *
#   CELL=word keeps the cells whose names contain the word; LANES=4 at once; VERBOSE=1 shows what each job said
#
# Exit status 1 when a line is "not ok".
#
# Several cells run at once, in lanes with hosts of their own; what time they take is mostly waiting. A cell that did not meet its
# phase, or met it and was late, is tried once more on fresh hosts, which its line says; too many of those are a failure.
set -u
mode=${1:-all}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
lanes=${LANES:-4}
hosts=$top/tests/hosts/hosts.sh
export BUILD top E2E_SANITIZE=

cells() { # one line a cell: NAME|PHASE VICTIM VERB STATUS WITHIN CLEAN AFTER MESSAGE
    sed -E 's/^ *//; /^(#|$)/d' "$here/cells.txt" | while read -r phase victim verb rest; do
        [ "$mode" != quick ] || [[ $phase == \** ]] || continue
        name="${phase#\*}: $verb $victim"
        case $name in *"${CELL:-}"*) echo "$name|${phase#\*} $victim $verb $rest" ;; esac
    done
}

if ! why=$("$hosts" can); then
    cells | sed "s/|.*/ # SKIP no hosts: $why/; s/^/ok - faults: /"
    exit 0
fi

work=$(mktemp -d "$BUILD/faults.XXXXXX") || exit 2
chmod 755 "$work"
# shellcheck disable=SC2317,SC2329 # called by the trap
clean_up() {
    local lane
    trap '' INT TERM HUP
    for lane in $(seq "$lanes"); do HOSTS_DIR=$work/hosts$lane "$hosts" down; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

# Nothing of a cell that went wrong may meet the next one.
fresh_hosts() {
    "$hosts" down
    "$hosts" up 2
}

one_try() { # DIRECTORY and the columns of the cell
    mkdir -p "$1"
    "$BUILD/tests/contain" 60 5 bash "$here/cell.sh" "$@" > "$1/log" 2>&1 < /dev/null
}

run_cell() { # NUMBER LINE
    local name=${2%%|*} dir=$work/cell$1 phase victim verb wanted within clean after message code again=
    read -r phase victim verb wanted within clean after message <<< "${2#*|}"
    set -- "$phase" "$victim" "$verb" "$wanted" "$within" "$clean" "$after" "$message"
    one_try "$dir" "$@"
    code=$?
    if [ $code = 75 ] || [ $code = 76 ]; then
        again="; at the second try: $(grep -m 1 -E '^(the phase was|too late|no |the fault could)' "$dir/log")"
        echo "$name$again" >> "$work/again"
        fresh_hosts
        dir=$dir.again
        one_try "$dir" "$@"
        code=$?
    fi
    [ $code != 124 ] || echo 'the cell still ran after 60 s' >> "$dir/log"
    case $code in
    0)
        echo "ok - faults: $name ($(grep -E "^[0-9]+ ms" "$dir/log" | tail -n 1)$again)"
        [ -z "${VERBOSE:-}" ] || sed "s/^/    # $name: /" "$dir/log"
        return
        ;;
    77)
        echo "ok - faults: $name # SKIP $(tail -n 1 "$dir/log")"
        return
        ;;
    esac
    { echo "not ok - faults: $name"; tail -n 30 "$dir/log" | sed 's/^/    # /'; } > "$dir/tap"
    cat "$dir/tap" # in one write: other lanes print too
    echo "$name" >> "$work/failed"
    fresh_hosts
}

# The lanes share descriptor 8: each takes the next line that is left.
lane() { # NUMBER
    local line
    export HOSTS_DIR=$work/hosts$1 HOSTS_BIND="$top $BUILD"
    if ! "$hosts" up 2; then
        echo "not ok - faults: the hosts of lane $1 did not start"
        echo "lane $1" >> "$work/failed"
        return
    fi
    while
        flock 9
        read -r line <&8
    do
        flock -u 9
        run_cell "$(cksum <<< "$line" | tr -d ' ')" "$line"
    done 9> "$work/lock"
}

cells > "$work/cells"
count=$(wc -l < "$work/cells")
[ "$count" -gt 0 ] || { echo "not ok - faults: no cell has '${CELL:-}' in its name"; exit 1; }
[ "$count" -ge "$lanes" ] || lanes=$count
: > "$work/again"
: > "$work/failed"
exec 8< "$work/cells"
for n in $(seq "$lanes"); do lane "$n" & done
wait
again=$(wc -l < "$work/again")
echo "# faults: $count cells, $again of them at the second try, in $SECONDS s"
if [ "$again" -gt $((count / 12 + 4)) ]; then
    echo "not ok - faults: too many cells needed a second try"
    sed 's/^/    # /' "$work/again"
    exit 1
fi
[ ! -s "$work/failed" ]
