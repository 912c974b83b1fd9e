# shellcheck shell=bash disable=SC2034,SC2154
# More than 2^31 elements in one operation, on one host.
limit=240

# shellcheck source=tests/e2e/large.sh
. "$top/tests/e2e/large.sh"

slow_allreduce_of_bytes() { large 4 allreduce u8 -np 2; }
slow_broadcast_of_bytes() { large 4 broadcast u8 -np 2; }
slow_allgather_of_bytes() { large 6 allgather u8 -np 2; }
slow_reducescatter_of_bytes() { large 6 reducescatter u8 -np 2; }
slow_alltoall_of_bytes() { large 4 alltoall u8 -np 2; }
slow_allreduce_of_floats() { large 16 allreduce f32 -np 2; }
