#!/bin/bash
# Runs one cell of the matrix: cell.sh DIRECTORY PHASE VICTIM VERB STATUS WITHIN CLEAN AFTER MESSAGE (see cells.txt). The hosts are up:
# head, where hvdrun runs, node1 with rank 0 and node2 with rank 1.
#
# The last line of its output is the verdict. Exit status 0: as it should be; 1: not so; 75: the phase was not met, so there is no
# verdict; 76: all as it should be, but late; 77: this machine cannot do that fault.
set -u
export T=$1 KIND=ns
phase=$2 victim=$3 verb=$4 wanted=$5 within=$6 clean=$7 after=$8 message=$9
export HVD_TEST_CASE=$T
cd "$T" || exit 1
here=$(dirname "$0")
# shellcheck source=tests/e2e/lib.sh
. "$here/../e2e/lib.sh"
hosts=$top/tests/hosts/hosts.sh
mark=$T/mark
mkdir -p "$mark"
heartbeat=2
grace=1
options=(--heartbeat-timeout "$heartbeat" --log-level debug --start-timeout 6)
IFS=, read -r -a victims <<< "$victim"
IFS=, read -r -a verbs <<< "$verb"
for i in "${!victims[@]}"; do verbs[i]=${verbs[i]:-${verbs[-1]}}; done

# Not by ssh: sshd and the network are among what is broken here.
on() { # NUMBER COMMAND
    "$hosts" exec "node$1" bash -c "$2"
}

there() { # HOST COMMAND
    "$hosts" exec "$1" bash -c "$2"
}

hit_by() { # VICTIM.VERB...: is that among the cell's faults?
    local i one
    for i in "${!victims[@]}"; do
        for one in "$@"; do [ "${victims[i]}.${verbs[i]}" != "$one" ] || return 0; done
    done
    return 1
}

microseconds() { # SECONDS, with or without a fraction
    local part=
    [[ $1 != *.* ]] || part=${1#*.}
    part=${part}000000
    echo $((${1%.*} * 1000000 + 10#${part:0:6}))
}

since_fault() { # in milliseconds
    echo $(((${EPOCHREALTIME/./} - since) / 1000))
}

# What comes too late is told from what never comes. A search takes time of its own: what it finds at once is in time.
late=
in_time() { # SECONDS PATIENCE WHAT COMMAND...
    local began=${EPOCHREALTIME/./}
    ! "${@:4}" || return 0
    until_true $((${1%.*} + 1 + $2)) "${@:4}" || return 1
    judge_time $(((${EPOCHREALTIME/./} - began) / 1000)) "$1" "$3"
}

judge_time() { # MILLISECONDS SECONDS WHAT
    [ $(($1 * 1000)) -le "$(microseconds "$2")" ] || late="${late:+$late; }$3 after $1 ms, not within $2 s"
}

# shellcheck source=tests/faults/search.sh
. "$here/search.sh"
# shellcheck source=tests/faults/phases.sh
. "$here/phases.sh"
# shellcheck source=tests/faults/faults.sh
. "$here/faults.sh"

# ---- the verdict --------------------------------------------------------------------------------------------------------
# A worker's death, or silence of its host, must have been told to the other rank in time: it waits in a collective.
told() {
    local limit=
    [ -e "$mark/failed.0" ] || return 0
    told=$((($(cat "$mark/failed.0") - ${silent_since:-$since}) / 1000))
    case $phase.$victim.$verb in
    collective.worker.kill | collective.worker.term) limit=0.1 ;;
    together.worker.kill | together.worker.term) limit=0.05 ;;
    # Both ranks and their engines want the processors meanwhile.
    *-*.worker.kill | all*.worker.kill | reducescatter.worker.kill | grouped.worker.kill | shared.worker.kill | compressed.worker.kill) limit=0.1 ;;
    # What it sends still comes through for a while: the other side's silence begins later.
    collective.network.deaf) limit=$((heartbeat + 1)) ;;
    collective.network.* | collective.host.*) limit=$heartbeat.2 ;;
    *) return 0 ;;
    esac
    judge_time "$told" "$limit" 'rank 0 was told'
}

hvdrun_is_dead() {
    hit_by hvdrun.kill
}

check_said() {
    ! hit_by reader.kill || expect_no "$T/err" '^hvdrun: (error: |warning: )?cannot write'
    # What is said by itself; the log that proves the phases does not count.
    grep -vE '(trace|debug|info): ' "$T/err" > "$T/said"
    [ "$message" = - ] || grep -qE -- "$message" "$T/said" || fail "nothing said is like \"$message\": $(cat "$T/said")"
    [ "$message" != - ] || [ "$status" = 0 ] || hvdrun_is_dead || hit_by reader.kill || fail "a cell whose job fails names its message"
    [ -z "${VERBOSE:-}" ] || { echo "exit status $status after $took ms"; cat "$T/said"; }
}

# An elastic job that ends well has lost nothing: every rank has the value of all steps, and no process was replaced.
check_training() {
    local ranks
    [[ $phase == elastic* ]] || return 0
    expect_no "$T/out" '^wrong'
    awk '$1 == "steps" && $2 in pid && pid[$2] != $3 {exit 1} $1 == "steps" {pid[$2] = $3}' "$T/out" || fail 'a worker has another process'
    [ "$status" = 0 ] || return 0
    ranks=$(sed -n 's/^right [0-9]* [0-9]* //p' "$T/out" | sort -u)
    [ "$(grep -c '^right ' "$T/out")" = "${ranks:-no}" ] || fail "not all ranks ended well: $(grep -E '^(right|left)' "$T/out")"
}

trap tidy EXIT
prepare
"phase_$phase"
aim
since=${EPOCHREALTIME/./}
hit
release
until_true $((${within%.*} + 9)) has_ended || fail "hvdrun still runs after $(since_fault) ms: $(leftovers)"
took=$(since_fault)
judge_time "$took" "$within" 'hvdrun ended'
stop_status
[[ $status =~ ^($wanted)$ ]] || fail "exit status is $status, not $wanted: $(grep -vE '(trace|debug|info): ' "$T/err")"
check_said
check_training
told
repair
in_time "$clean" 5 'all was gone' all_gone head node1 node2 || fail "processes were left: $(leftovers)"
in_time "$clean" 3 'all files were gone' no_files_left || fail "files were left: $(files_left)"
end_connections
[ -z "$late" ] || { echo "too late: $late"; exit 76; }
echo "$took ms${told:+, rank 0 was told after $told ms}${went_on:+, it went on after $went_on ms}"
