# shellcheck shell=bash disable=SC2034,SC2154
# The same by two ranks of two hosts; what is said there is in sentences_hosts.txt.
hosts=2

# shellcheck source=tests/e2e/sentences.sh
. "$top/tests/e2e/sentences.sh"

case_two_ranks_of_two_hosts() { sentences sentences_hosts.txt -np 2 -H $H1:1,$H2:1; }
