#!/bin/bash
# End-to-end tests: every case is a function case_NAME (or slow_NAME, left out of `quick`) of a topic file, run in a bash of
# its own under a time limit. Prints one TAP line a case; exit status 1 when one of them is "not ok".
#
#   BUILD=build tests/e2e/run.sh quick|all
#   TESTS="exit signals"  keeps topics that have one of the words in their names; CASE=word keeps such cases
#   LANE=local|hosts|alone  only the topics that need nothing but this machine's processes and loopback, only those on hosts of their own
#                         (namespaces), only those with alone=1: the three may run beside one another, as tests/run.sh does
#   HOSTS=ns|loop|none    where topics with `hosts=N` find their hosts: namespaces (root), loopback sshd; by itself the first
#                         that works. VERBOSE=1 shows what a failed case left in its directory.
#
# A topic file may set, before its functions:
#   hosts=N       its cases run on a machine that reaches hosts node1 ... nodeN (see lib.sh: $H1, $H2, ...)
#   limit=S       seconds for a case (20)
#   alone=1       they measure times of milliseconds
#   needs_root=1  skipped for ordinary users
#   family=v6     its hosts have IPv6 addresses alone (they are namespaces, and two)
set -u

mode=${1:-quick}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
contain=$BUILD/tests/contain
# shellcheck source=tests/gpu/limits.sh
. "$top/tests/gpu/limits.sh"
[ -x "$contain" ] || { echo "e2e/run.sh: there is no $contain: run make first" >&2; exit 2; }
trap 'exit 130' INT TERM HUP PIPE
trap 'rm -rf "${work:-}" "${E2E_RUNTIME:-}"' EXIT # until there is more
mkdir -p "$BUILD/e2e"
# Names that are known before there is such a directory: a signal at any moment removes it.
work=$BUILD/e2e/run.$$.$RANDOM
mkdir -m 755 "$work" || { work=; exit 2; }
export BUILD top work
# Of the cases, and short: the path of a socket has 108 bytes.
E2E_RUNTIME=/tmp/hvdrt.$$.$RANDOM
mkdir -m 755 "$E2E_RUNTIME" || { E2E_RUNTIME=; exit 2; }
export E2E_RUNTIME
export E2E_SANITIZE=${SANITIZE:-}
declare -A hosts_choice hosts_kind hosts_up # of a family of addresses, v4 or v6: ns, loop or why there are none; those to take down
servers=()
failed=0

not_ok() { # TEXT
    failed=1
    echo "not ok - $1"
}

# shellcheck disable=SC2317,SC2329 # called by the trap
clean_up() {
    local family
    trap '' INT TERM HUP PIPE # once; who reads may have been ended with us
    [ ${#servers[@]} = 0 ] || kill "${servers[@]}" 2> /dev/null
    for family in "${!hosts_up[@]}"; do
        case ${hosts_up[$family]} in
        ns) HOSTS_DIR=$work/$family "$top/tests/hosts/hosts.sh" down ;;
        loop) HOSTS_DIR=$work/$family "$top/tests/hosts/loopback.sh" down ;;
        esac
    done
    rm -rf "$work" "$E2E_RUNTIME"
    rmdir "$BUILD/e2e" 2>/dev/null
}
trap clean_up EXIT

case_functions() { # FILE
    bash -n "$1" || return
    # shellcheck disable=SC1090
    (
        . "$here/lib.sh"
        before=$(declare -F)
        . "$1"
        declare -F | grep -vxF "$before" | awk '{print $3}' | grep -E '^(case|slow)_'
    )
}

setting() { # FILE NAME DEFAULT
    local value
    value=$(sed -n "s/^$2=\([^ #]*\).*/\1/p" "$1" | head -n 1)
    echo "${value:-$3}"
}

choose_hosts() { # FAMILY: prints ns, loop or the reason why there are none
    local why_ns why_loop='with IPv4 alone'
    case ${HOSTS:-}.$1 in ns.* | loop.v4) echo "$HOSTS"; return ;; none.* | loop.*) echo "HOSTS=$HOSTS"; return ;; esac
    if why_ns=$("$top/tests/hosts/hosts.sh" can "$1"); then
        echo ns
    elif [ "$1" = v4 ] && why_loop=$("$top/tests/hosts/loopback.sh" can); then
        echo loop
    else
        echo "no hosts: $why_ns; $why_loop"
    fi
}

lane_of() { # FILE
    if [ "$(setting "$1" alone 0)" = 1 ]; then
        echo alone
    elif [ "$(setting "$1" hosts 0)" = 0 ]; then
        echo local
    elif [ "${hosts_choice[$(setting "$1" family v4)]}" = ns ]; then
        echo hosts
    else
        echo local # loopback hosts are this machine
    fi
}

start_hosts() { # FAMILY: sets hosts_kind; more than one topic shares them
    export HOSTS_DIR=$work/$1 HOSTS_BIND="$top $BUILD"
    [ -z "${hosts_kind[$1]:-}" ] || return 0
    hosts_kind[$1]=${hosts_choice[$1]:-$(choose_hosts "$1")}
    case ${hosts_kind[$1]}.$1 in
    ns.v4) set -- "$1" "$top/tests/hosts/hosts.sh" up 4 ;;
    ns.v6) set -- "$1" "$top/tests/hosts/hosts.sh" up 2 v6 ;;
    loop.*) set -- "$1" "$top/tests/hosts/loopback.sh" up 4 ;;
    *) return 0 ;;
    esac
    hosts_up[$1]=${hosts_kind[$1]} # in part, perhaps
    if ! "${@:2}" 2> "$work/hosts.err"; then
        hosts_kind[$1]="hosts did not start: $(tail -n 1 "$work/hosts.err")"
    elif [ "${hosts_kind[$1]}" = ns ]; then
        mkfifo "$HOSTS_DIR/ask"
        serve_hosts <> "$HOSTS_DIR/ask" &
        servers+=($!)
    fi
}

serve_hosts() { # for cases, which cannot enter another host than their own: lines of a fifo for the answer, the host, a command line
    local answer host command
    trap - EXIT INT TERM HUP
    while IFS=$'\t' read -r answer host command; do
        "$top/tests/hosts/hosts.sh" exec "$host" bash -c "$command" > "$answer" 2> /dev/null < /dev/null &
    done
}

run_case() { # TOPIC FILE FUNCTION LIMIT KIND
    local dir=$work/$1.$3 name="$1: ${3#*_}" status started=${EPOCHREALTIME/./} took
    name=${name//_/ }
    mkdir -p "$dir"
    chmod 777 "$dir"
    [ -z "$E2E_SANITIZE" ] || set -- "$1" "$2" "$3" $(($4 * 4)) "$5"
    local there=()
    [ "$5" != ns ] || there=("$top/tests/hosts/hosts.sh" exec head env HOME=/root)
    [ -z "${TEST_TIMES:-}" ] || echo "# begin $name"
    "$contain" "$4" 10 "${there[@]}" bash "$here/case.sh" "$2" "$3" "$dir" "$5" > "$dir/log" 2>&1 < /dev/null
    status=$?
    took=$(((${EPOCHREALTIME/./} - started) / 1000))
    [ -z "${TEST_TIMES:-}" ] || echo "$took $name" >> "$TEST_TIMES"
    case $status in
    0) echo "ok - $name"; grep '^# ' "$dir/log" | sed 's/^/    /' ;; # figures
    77) echo "ok - $name # SKIP $(grep -v "^contain: " "$dir/log" | tail -n 1)" ;;
    *)
        if [ $status = 124 ] || [ $status = 137 ]; then
            not_ok "$name: still running after $((took / 1000)) s"
        else
            not_ok "$name"
        fi
        sed 's/^/    # /' "$dir/log" | tail -n 40
        [ -z "${VERBOSE:-}" ] || tail -n 15 "$dir"/out "$dir"/err 2>/dev/null | sed 's/^/    # /'
        # What a stuck case left must not disturb the next one.
        "${there[@]}" timeout -k 5 30 bash "$here/sweep.sh" "$dir" "$5" 2>/dev/null | sed 's/^/    # /'
        ;;
    esac
    [ -z "${TEST_TIMES:-}" ] || echo "# end $name"
}

run_topic() { # FILE
    local file=$1 topic kind=local limit family function functions
    topic=$(basename "$file" .sh)
    functions=$(case_functions "$file") || functions=
    if [ -z "$functions" ]; then
        not_ok "$topic: the file cannot be read, or has no case"
        return
    fi
    limit=$(setting "$file" limit 20)
    case $topic in gpu_*) limit=$((limit * $(gpu_limit topic_times))) ;; esac
    if [ "$(setting "$file" hosts 0)" != 0 ]; then
        family=$(setting "$file" family v4)
        start_hosts "$family"
        E2E_HOSTS=$(setting "$file" hosts 0)
        export E2E_HOSTS
        kind=${hosts_kind[$family]}
    fi
    for function in $functions; do
        case $function in slow_*) [ "$mode" = all ] || continue ;; esac
        case $function in *"${CASE:-}"*) ;; *) continue ;; esac
        local name="$topic: ${function#*_}"
        if [ "$(setting "$file" needs_root 0)" = 1 ] && [ "$(id -u)" != 0 ]; then
            echo "ok - ${name//_/ } # SKIP needs root"
        elif [[ $kind == "hosts did not start"* ]]; then
            not_ok "${name//_/ }: $kind"
        elif [[ $kind != local && $kind != ns && $kind != loop ]]; then
            echo "ok - ${name//_/ } # SKIP $kind"
        else
            run_case "$topic" "$file" "$function" "$limit" "$kind"
        fi
    done
}

[ -n "${HOSTS:-}" ] || E2E_NO_NAMESPACES=$("$top/tests/hosts/hosts.sh" can) # why there are none, for cases that need such hosts
export E2E_NO_NAMESPACES
[ -z "${LANE:-}" ] || for family in v4 v6; do hosts_choice[$family]=$(choose_hosts $family); done
for file in "$here"/topics/*.sh; do
    keep=
    for word in ${TESTS:-.}; do
        case $(basename "$file" .sh) in *"$word"*) keep=1 ;; esac
        [ "$word" != . ] || keep=1
    done
    [ -z "$keep" ] || { [ -n "${LANE:-}" ] && [ "$(lane_of "$file")" != "$LANE" ]; } || run_topic "$file"
done
exit $failed
