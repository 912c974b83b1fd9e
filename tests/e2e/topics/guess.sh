# shellcheck shell=bash disable=SC2034,SC2154
# A command that looks as if it will use PMIx finds its server there, and what that has in shared memory.
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

case_program_is_seen() {
    mpi_program mpi_ring
    # shellcheck disable=SC2016 # for the worker
    hvd -np 1 sh -c 'echo "$PMIX_GDS_MODULE"' sh "$program"
    expect_status 0
    expect_count 1 '^(ds21|shmem[2-9]?),' "$T/out" # of libpmix 4, of 5
}

case_others_start_no_server() {
    needs_openmpi
    # shellcheck disable=SC2016 # for the worker
    hvd -np 1 sh -c 'echo "$PMIX_GDS_MODULE"'
    expect_status 0
    expect_count 1 '^hash$' "$T/out"
}

# A program behind something that nobody can see through is started later, and works.
case_unseen_program() {
    mpi_program mpi_ring
    printf '#!/bin/sh\nexec %s\n' "$program" > "$T/hidden"
    chmod +x "$T/hidden"
    hvd -np 2 "$T/hidden"
    expect_all_good 2
}

case_topology_is_shared() {
    needs_openmpi
    pkg-config --exists hwloc || skip "this build has no hwloc (apt-get install libhwloc-dev)"
    # shellcheck disable=SC2046 # words
    compiled pmix_job_key cc $(pkg-config --cflags --libs pmix | sed 's/^/-Wl,--no-as-needed /')
    hvd -np 2 "$program" pmix.hwlocfile
    expect_status 0
    expect_count 2 '/pmix/hwloc.sm$' "$T/out"
}

# OpenMPI's ranks look for the machine only to bind themselves, which the user may want.
case_ranks_that_bind_themselves() {
    hvd -np 2 env
    expect_count 2 '^OMPI_MCA_orte_bound_at_launch=1$' "$T/out"
    OMPI_MCA_hwloc_base_binding_policy=core hvd -np 2 env
    expect_count 0 '^OMPI_MCA_orte_bound_at_launch' "$T/out"
}
