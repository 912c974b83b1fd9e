# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# The page of a job, in a real browser.
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl
limit=60

# The document that the page's script has made, in $T/dom.
open_page() { # FILE
    local browser
    browser=$(command -v chromium-headless-shell || command -v chromium) || skip 'no chromium here'
    [ -s "$1" ] || fail "there is no page $1: $(cat "$T/err")"
    HOME=$T timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$T/browser" --dump-dom "file://$1" > "$T/dom" 2> "$T/browser.err" ||
        fail "the browser: $(tail -n 3 "$T/browser.err")"
    grep -q '<html lang="en" data-milliseconds="[0-9]*"' "$T/dom" || fail "the page was not drawn: $(grep -o 'data-failure="[^"]*"' "$T/dom")"
    ! grep -qiE 'CONSOLE.*(error|violates|refused)' "$T/browser.err" || fail "$(grep -i CONSOLE "$T/browser.err")"
    # Without the data, which has all texts anyway.
    sed -e '/<script type="application\/json"/,/<\/script>/d' -e '/^<script>/,/<\/script>/d' "$T/dom" > "$T/seen"
}

expect_seen() { # TEXT, as HTML has it
    grep -qF -- "$1" "$T/seen" || fail "the page does not show \"$1\": $(sed -e 's/<[^>]*>/ /g' "$T/seen" | tr -s ' \n' ' ' | tail -c 1500)"
}

case_a_job_that_failed() {
    hvd --report "$T/page.html" -np 3 sh -c 'echo "started $HVD_RANK" >&2; [ $HVD_RANK = 1 ] || exec sleep 20; sleep 0.3; echo "the last words" >&2; exit 7'
    expect_status 7
    open_page "$T/page.html"
    expect_seen '<span class="badge bad">failed</span>'
    expect_seen 'rank 1 on localhost'
    expect_seen 'the last words</pre>'
    expect_seen '<td>exit status 7</td>'
    expect_seen '<td>signal 15, ended by hvdrun</td>'
    expect_seen "hvdrun --report $T/page.html -np 3 sh -c '"
    expect_seen '<canvas tabindex="0" role="application"'
    expect_same 600 "$(stat -c %a "$T/page.html")" 'the mode of the page'
}

case_a_job_that_ended_well() {
    hvd --report "$T/page.html" -np 2 sleep 2.5
    expect_status 0
    open_page "$T/page.html"
    expect_seen '<span class="badge good">ended well</span>'
    ! grep -q 'Why it ended' "$T/seen" || fail 'a cause is shown'
    expect_seen '<td>exit status 0</td>'
}

# The text of ranks, of the command and of the environment stays text.
case_hostile_text_is_text() {
    local evil='</script><script>document.documentElement.dataset.owned=1</script><img src=x onerror="document.documentElement.dataset.owned=2"><!--'
    export EVIL=$evil OMP_EVIL=$evil
    hvd --report "$T/page.html" -np 1 sh -c 'printf "%s\n" "$EVIL" >&2; printf "\033[31m\377\0 \342\200\250 %s\n" "-->" >&2; exit 3' "$evil"
    unset EVIL OMP_EVIL
    expect_status 3
    open_page "$T/page.html"
    ! grep -q 'data-owned\|<img' "$T/dom" || fail 'the text of a rank has run as a script'
    expect_seen '&lt;/script&gt;&lt;script&gt;document.documentElement.dataset.owned=1&lt;/script&gt;&lt;img src=x'
    expect_seen '<td>OMP_EVIL</td><td>&lt;/script&gt;'
}

case_no_secret_is_in_it() {
    HOROVOD_SECRET_KEY=sesame1 OMP_API_TOKEN=sesame2 PRIVATE=sesame3 NCCL_DEBUG=INFO hvd --report "$T/page.html" -x GIVEN=sesame4 -xJOINED=sesame5 -x HOROVOD_PASSWORD=sesame6 -x NCCL_ALGO=Ring -np 1 true
    expect_status 0
    ! grep -o 'sesame.' "$T/page.html" || fail 'a secret is in the page'
    # In the command line, in the first command and in the list of programs.
    HVDRUN_ENV='WANDB_API_KEY=sesame7' hvd --report "$T/json" --mpi-args '-x TOKEN=sesame8' -np 1 sh -c 'exit 0' -xmax=10
    expect_count 3 '^ +"-xmax=10",?$' "$T/json"
    ! grep -o 'sesame.' "$T/json" || fail 'a secret is in the report'
    grep -q '"NCCL_DEBUG": "INFO"' "$T/page.html" || fail 'NCCL_DEBUG is not in the page'
    grep -q '"NCCL_ALGO=Ring"' "$T/page.html" || fail 'NCCL_ALGO is not in the command line'
    grep -q '"GIVEN"' "$T/page.html" || fail 'the name of the variable is not in the command line'
}

names_the_slow_rank() {
    "$CTL" page "t$$" --json 2> /dev/null | grep -q '"rank 1 on localhost is always late: '
}

# Their processor time was counted below the rank, and then in it.
slow_children_that_end() {
    hvd --report "$T/json" -np 1 sh -c 'for i in 1 2 3 4 5 6 7; do timeout 1 sh -c "while :; do :; done"; done'
    python3 -c "import json
rank = json.load(open('$T/json'))['ranks'][0]
values = [int(x) for x in rank['history']['processor_percent'].split() if x != '-']
assert len(values) > 1 and max(values) < 300, values
assert sum(values) / len(values) > 20, values" > "$T/looked" 2>&1 || fail "$(cat "$T/looked")"
}

# Other work on this machine makes the slow rank wait, too, for a while.
shows_the_slow_rank() {
    run "$CTL" page "t$$" --json
    expect_status 0
    python3 -c "import json
report = json.load(open('$T/out'))
assert report['exit_status'] is None and report['cause'] is None, report
assert [rank['rank'] for rank in report['ranks']] == [0, 1, 2], report['ranks']
history = report['history']
# 3 ms of work and the allreduces.
steps = [int(us) for us in history['step_us'].split() if us != '-']
assert steps and all(2900 < us < 100000 for us in steps), history
waits = [[int(x) for x in rank['history']['waiting_percent'].split() if x != '-'] for rank in report['ranks']]
middle = [sorted(of)[len(of) // 2] for of in waits]
assert min(middle[0], middle[2]) > middle[1] + 10, waits" > "$T/looked" 2>&1
}

case_a_job_that_runs() {
    start --job-name "t$$" -np 3 "$CULPRIT" slow 1
    until_out 10 ready 3
    sleep 4
    until_true 25 names_the_slow_rank
    run "$CTL" page "t$$" --file "$T/page.html"
    expect_status 0
    expect_same "$T/page.html" "$(cat "$T/out")" 'the path'
    expect_same 600 "$(stat -c %a "$T/page.html")" 'the mode of the page'
    open_page "$T/page.html"
    expect_seen '<span class="badge run">running</span>'
    expect_seen 'rank 1 on localhost is always late: '
    expect_seen 'Waiting in operations, by rank'
    expect_seen 'Time of a step'
    until_true 20 shows_the_slow_rank || fail "$(cat "$T/looked")"
    run "$CTL" page "t$$" --file "$T/no/such"
    expect_status 1
    one_clear_line '^hvdctl: cannot write .*/no/such: No such file or directory$' 'a file'
    "$CTL" kill "t$$" > /dev/null
    stop_status
    run "$CTL" page "t$$"
    expect_status 1
    one_clear_line "^hvdctl: no job on this host is named t$$\$" 'no job'
}
