# For scripts whose tests are functions named case_*: . tests/cases.sh, with $work as a directory of the script's own. A case has its own
# directory $T; it ends with fail or skip, or with its last command. CASE=word keeps the cases with that word in their names.
# shellcheck shell=bash disable=SC2034,SC2154 # $T is for the cases, $work comes from the script
failed=0

fail() {
    echo "$1" >&2
    exit 1
}

skip() {
    echo "$1" >&2
    exit 77
}

expect() { # PATTERN FILE
    grep -qE -- "$1" "$2" || { sed 's/^/    /' "$2" >&2; fail "no line matches $1"; }
}

say_result() { # SUITE STATUS NAME FILE WITH REASONS: one TAP line
    case $2 in
    0) echo "ok - $1: $3" ;;
    77) echo "ok - $1: $3 # SKIP $(tail -n 1 "$4")" ;;
    *)
        failed=1
        echo "not ok - $1: $3"
        tail -n 20 "$4" | sed 's/^/    # /'
        ;;
    esac
}

list_cases() {
    declare -F | sed -n "s/^declare -f \(case_.*${CASE:-}.*\)/\1/p"
}

run_cases() { # SUITE: all of them, and the script ends
    local case name
    for case in $(list_cases); do
        T=$work/$case name=${case#case_}
        mkdir -p "$T"
        ("$case") 2> "$T/err"
        say_result "$1" $? "${name//_/ }" "$T/err"
    done
    exit "$failed"
}
