# shellcheck shell=bash disable=SC2034,SC2154
# Ranks that others wait for: hvdctl top, status and metrics, and the report.
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl

# Python's `report`, `late` (by rank) and `sentences`.
look_into() { # FILE PROGRAM
    python3 -c "import json
report = json.load(open('$1'))
late = {rank['rank']: rank['lateness'] for rank in report['ranks']}
sentences = report['lateness']['sentences']
$2" > "$T/looked" 2>&1 || fail "the report: $(cat "$T/looked")"
}

# After the first words about what ranks use, which come every ten seconds.
top_knows() {
    # Other tests may have jobs, too: only ours, and the lines below its name.
    "$CTL" top -n 1 | awk -v name="t$$-" '/^$/ { ours = 0 } NF == 1 && index($0, name) == 1 { ours = 1 } ours' > "$T/top" && grep -qE '^ +1 .* [0-9]+% always' "$T/top" && "$CTL" status "t$$" | grep -q '^late: .*; it '
}

case_a_rank_that_is_always_slow() {
    start --job-name "t$$" --report "$T/report" -np 3 "$CULPRIT" slow 1
    until_true 25 top_knows || fail "hvdctl top: $(cat "$T/top")"
    # The slow rank stands first.
    expect_same 1 "$(grep -A1 -E '^ +RANK' "$T/top" | tail -n 1 | awk '{print $1}')" 'the first rank of top'
    "$CTL" status "t$$" > "$T/shown"
    expect_count 1 '^late: rank 1 on localhost is always late: ([6-9][0-9]|100) % of all waiting for others is for it.*; by [0-9.]+ [um]s in the median, by [0-9.]+ m?s at "layer\.[0-3]\.weight"; it ' "$T/shown"
    "$CTL" metrics > "$T/shown"
    expect_count 1 '^hvd_rank_waited_for_ratio\{job="'"t$$"'-[0-9a-f]+",user="[^"]+",host="localhost",rank="1"\} 0\.[6-9]' "$T/shown"
    expect_count 3 "^hvd_rank_operation_seconds_total\{job=\"t$$-" "$T/shown"
    ! grep -vE '^(# (HELP|TYPE) hvd_[a-z_]+ .+|hvd_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+)$' "$T/shown" || fail 'that is no line of the format'
    "$CTL" status "t$$" --json > "$T/shown"
    python3 -c "import json
ranks = json.load(open('$T/shown'))['ranks']
# A busy machine may stop one of the others for a moment, once.
assert [r['lateness']['late'] in ('always', 'often') for r in ranks] == [False, True, False], ranks" 2> "$T/looked" || fail "$(cat "$T/looked")"
    kill "$pid"
    stop_status
    look_into "$T/report" "
assert report['lateness']['sampled_operations'] > 100, report
assert [late[rank]['late'] in ('always', 'often') for rank in range(3)] == [False, True, False] and late[1]['late'] == 'always', late
assert late[1]['share_of_waiting'] > 0.6 and 0.0004 < late[1]['median'] < 0.01, late
assert late[1]['reason'] and (late[0]['reason'] is None or late[0]['late'] == 'once'), late
assert sentences[0].startswith('rank 1 on localhost is always late: ') and 'always' not in str(sentences[1:]), sentences"
}

case_one_pause() {
    start --job-name "t$$" --report "$T/report" -np 2 "$CULPRIT" pause 1
    sleep 7
    kill "$pid"
    stop_status
    look_into "$T/report" "
assert late[1]['late'] == 'once' and late[0]['late'] in ('no', 'once'), late
assert 0.45 < late[1]['worst'] < 0.8 and late[1]['worst_tensor'] == 'layer.0.weight', late
assert 4 < late[1]['worst_at'] < 6, late
assert sentences[0].startswith('rank 1 on localhost was late once by '), sentences"
}

case_a_healthy_job_accuses_nobody() {
    start --job-name "t$$" --report "$T/report" -np 2 "$CULPRIT" healthy 1
    sleep 4
    kill "$pid"
    stop_status
    look_into "$T/report" "
assert report['lateness']['sampled_operations'] > 100, report
assert not [rank for rank in late if late[rank]['late'] in ('always', 'often')], late"
}

case_jobs_without_operations() {
    hvd --report "$T/report" -np 2 sleep 2.5
    look_into "$T/report" "
assert report['lateness'] == {'sampled_operations': 0, 'waited': 0, 'sentences': []}, report
assert set(late.values()) == {None}, late"
}
