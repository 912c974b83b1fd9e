# shellcheck shell=bash disable=SC2034,SC2154
# A rank that is a client of PMIx and then spoils what it sends, in a way for each seed: the other ranks go on, or the library
# crashes in its own process and the job ends with a line that says so; seldom, it misleads another rank before it does, which then
# is what failed first. The session is never lost.
limit=900
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

vandals() { # FIRST LAST
    local seed kept=0 refused=0 crashed=0 misled=0
    pmix_program
    compiled pmix_vandal pmix_compiler
    for ((seed = $1; seed <= $2; seed++)); do
        hvd -np 3 "$program" "$seed"
        if [ "$status" = 0 ]; then
            expect_count 2 '^[02] good$' "$T/out"
            kept=$((kept + 1))
        elif [ "$status" = 1 ]; then
            expect_count 1 '^hvdrun: rank [02] on localhost \(pid [0-9]+\) failed first: exit status 1, ' "$T/err"
            misled=$((misled + 1))
        else
            expect_status 125
            expect_count 1 '^hvdrun: host localhost: the PMIx server \(pid [0-9]+\) was killed by signal [0-9]+ \(.*\); rank [0-2] had sent to it last$' "$T/err"
            crashed=$((crashed + 1))
        fi
        case $((seed % 8)) in
        2 | 3 | 4)
            expect_status 0
            expect_count 1 '^hvdrun: warning: localhost: the connection of rank 1 to the PMIx server was closed: it sent a message ' "$T/err"
            refused=$((refused + 1))
            ;;
        esac
    done
    echo "# $kept jobs went on, $refused of them without their vandal; $crashed servers crashed, $misled misled a rank"
    [ $misled -le $((($2 - $1) / 100)) ] || fail "$misled servers misled a rank"
}

case_a_tool_is_refused() {
    pmix_program
    compiled pmix_tool pmix_compiler
    hvd -np 1 "$program"
    expect_status 0
    expect_count 1 '^refused$' "$T/out"
    expect_count 1 '^hvdrun: warning: localhost: a tool of PMIx was refused: only the ranks of the job are served$' "$T/err"
}
case_they_disturb_nobody() { vandals 0 7; }
slow_two_hundred_vandals() { vandals 0 199; }
