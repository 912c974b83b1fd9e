#!/bin/bash
# The fault matrix: each line of cells.txt is a job on namespaced hosts that meets one fault in one phase. Prints one TAP line a cell.
#
#   BUILD=build CELL=word LANES=4 tests/faults/run.sh      CELL keeps the cells whose names contain the word;
#                                                          VERBOSE=1 shows what each job said
#
# Several cells run at once, in lanes with hosts of their own; what time they take is mostly waiting.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
lanes=${LANES:-4}
hosts=$top/tests/hosts/hosts.sh
export BUILD top E2E_SANITIZE=

cells() { # one line a cell: NAME|PHASE VICTIM VERB STATUS WITHIN CLEAN AFTER MESSAGE
    sed -E 's/^ *//; /^(#|$)/d' "$here/cells.txt" | while read -r phase victim verb rest; do
        name="$phase: $verb $victim"
        case $name in *"${CELL:-}"*) echo "$name|$phase $victim $verb $rest" ;; esac
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
    for lane in $(seq "$lanes"); do HOSTS_DIR=$work/hosts$lane "$hosts" down; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# Nothing of a cell that went wrong may meet the next one.
fresh_hosts() {
    "$hosts" down
    "$hosts" up 2
}

one_try() { # DIRECTORY and the columns of the cell
    timeout -k 5 60 bash "$here/cell.sh" "$@" > "$1/log" 2>&1 < /dev/null
}

run_cell() { # NUMBER LINE
    local name=${2%%|*} dir=$work/cell$1 phase victim verb wanted within clean after message code
    read -r phase victim verb wanted within clean after message <<< "${2#*|}"
    mkdir -p "$dir"
    set -- "$phase" "$victim" "$verb" "$wanted" "$within" "$clean" "$after" "$message"
    one_try "$dir" "$@"
    code=$?
    if [ $code = 75 ]; then
        fresh_hosts
        dir=$dir.again
        mkdir -p "$dir"
        one_try "$dir" "$@"
        code=$?
    fi
    [ $code != 124 ] || echo 'the cell still ran after 60 s' >> "$dir/log"
    if [ $code = 0 ]; then
        echo "ok - faults: $name ($(tail -n 1 "$dir/log") ms)"
        [ -z "${VERBOSE:-}" ] || sed "s/^/    # $name: /" "$dir/log"
        return
    fi
    { echo "not ok - faults: $name"; tail -n 30 "$dir/log" | sed 's/^/    # /'; } > "$dir/tap"
    cat "$dir/tap" # in one write: other lanes print too
    fresh_hosts
}

lane() { # NUMBER
    local k=0 line
    export HOSTS_DIR=$work/hosts$1 HOSTS_BIND="$top $BUILD"
    "$hosts" up 2 || { echo "not ok - faults: the hosts of lane $1 did not start"; return; }
    while read -r line; do
        k=$((k + 1))
        [ $((k % lanes)) != $(($1 % lanes)) ] || run_cell $k "$line"
    done < "$work/cells"
}

cells > "$work/cells"
[ -s "$work/cells" ] || { echo "not ok - faults: no cell has '${CELL:-}' in its name"; exit 1; }
[ "$(wc -l < "$work/cells")" -ge "$lanes" ] || lanes=$(wc -l < "$work/cells")
for n in $(seq "$lanes"); do lane "$n" & done
wait
