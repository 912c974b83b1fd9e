# shellcheck shell=bash disable=SC2034,SC2154
# From a worker's death to the error on every other rank of one host.
alone=1
limit=60

slow_every_other_rank_is_told_soon() {
    bad_news 50 -np 4
}
