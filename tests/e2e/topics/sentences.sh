# shellcheck shell=bash disable=SC2034,SC2154
# What a program is told when it is wrong: tests/e2e/sentences.sh.

# shellcheck source=tests/e2e/sentences.sh
. "$top/tests/e2e/sentences.sh"

case_two_ranks_of_one_host() { sentences sentences.txt -np 2; }
