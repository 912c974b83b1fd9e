# shellcheck shell=bash disable=SC2034,SC2154
# More than 2^31 elements, and more than 4 GiB, between two hosts (large.sh is the same on one).
hosts=2
limit=240

# shellcheck source=tests/e2e/large.sh
. "$top/tests/e2e/large.sh"

slow_allreduce_of_more_than_4_gib() { large 8 allreduce u16 -np 2 -H $H1:1,$H2:1; }
slow_allgather_of_bytes() { large 6 allgather u8 -np 2 -H $H1:1,$H2:1; }
slow_broadcast_of_more_than_4_gib() { large 8 broadcast u16 -np 2 -H $H1:1,$H2:1; }
slow_alltoall_of_bytes() { large 4 alltoall u8 -np 2 -H $H1:1,$H2:1; }
slow_reducescatter_of_bytes() { large 6 reducescatter u8 -np 2 -H $H1:1,$H2:1; }
