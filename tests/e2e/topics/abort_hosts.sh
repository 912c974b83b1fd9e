# shellcheck shell=bash disable=SC2034,SC2154
# hvd_abort on two hosts.
hosts=2
limit=60

# shellcheck source=tests/e2e/quitter.sh
. "$top/tests/e2e/quitter.sh"

case_the_rank_that_gave_up_is_named() {
    hvd -np 2 -H $H1:1,$H2:1 "$QUITTER" 5
    rank_is_named 5 $H2 2
}

case_it_may_clean_up_first() {
    hvd -np 4 -H $H1:2,$H2:2 "$QUITTER" 5 1500
    rank_is_named 5 $H1 4
}
