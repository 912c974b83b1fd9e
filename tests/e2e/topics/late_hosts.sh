# shellcheck shell=bash disable=SC2034,SC2154
# Ranks of two hosts that others wait for.
hosts=2
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl

# Its host and the rank itself come first.
rank_is_late() {
    "$CTL" top -n 1 > "$T/top" && grep -qE "^late2[^ ]* .* $H2 .*[KMG] +([6-9][0-9]|100)% " "$T/top" &&
        grep -m 1 '^late2' "$T/top" | grep -q " $H2 " &&
        [ "$(grep -A1 -m 1 -E '^ +RANK' "$T/top" | tail -n 1 | awk '{print $1}')" = 2 ]
}

case_a_rank_of_the_other_host() {
    start --job-name late2 --report "$T/report" -np 4 -H "$H1:2,$H2:2" "$CULPRIT" slow 2
    until_true 20 rank_is_late || fail "hvdctl top: $(cat "$T/top")"
    sleep 6
    kill "$pid"
    stop_status
    python3 -c "import json
report = json.load(open('$T/report'))
late = {rank['rank']: rank['lateness'] for rank in report['ranks']}
assert report['lateness']['sampled_operations'] > 100, report['lateness']
assert [late[rank]['late'] in ('always', 'often') for rank in range(4)] == [False, False, True, False], late
assert report['lateness']['sentences'][0].startswith('rank 2 on $H2 is always late: '), report['lateness']" > "$T/looked" 2>&1 || fail "$(cat "$T/looked")"
}
