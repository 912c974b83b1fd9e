# shellcheck shell=bash disable=SC2034,SC2154
# From a worker's death to the error on every other rank, over two hosts.
alone=1
hosts=2
limit=90

slow_every_other_rank_is_told_soon() {
    needs_kind ns
    bad_news 100 -np 4 -H $H1:2,$H2:2
}
