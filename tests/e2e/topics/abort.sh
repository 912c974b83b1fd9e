# shellcheck shell=bash disable=SC2034,SC2154
# hvd_abort on one host: the rank that gave up is the cause, with its sentence and its own status.
limit=40

# shellcheck source=tests/e2e/quitter.sh
. "$top/tests/e2e/quitter.sh"

case_the_rank_that_gave_up_is_named() {
    hvd -np 3 "$QUITTER" 5
    rank_is_named 5 localhost 3
}

# The others have ended long before.
case_it_may_clean_up_first() {
    hvd -np 3 "$QUITTER" 5 1500
    rank_is_named 5 localhost 3
}

case_status_0_is_a_failure_as_well() {
    hvd -np 2 "$QUITTER" 0 1500
    rank_is_named 1 localhost 2
}

case_the_report_has_its_sentence() {
    hvd -np 2 --report "$T/report" "$QUITTER" 6
    expect_status 6
    grep -q '"how": *"gave up: ValueError: bad .batch; exit status 6"' "$T/report" || fail "no sentence: $(cat "$T/report")"
}
