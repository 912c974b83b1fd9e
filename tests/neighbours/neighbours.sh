# Programs of other projects' libraries, for end-to-end cases: compiled here with the packages that are installed.
# shellcheck shell=bash disable=SC2034,SC2154

needs_openmpi() {
    command -v mpicc.openmpi > /dev/null || skip "OpenMPI is not installed (apt-get install openmpi-bin libopenmpi-dev)"
    [ -e "$BUILD/modules/hvd-pmix" ] || skip "this build has no PMIx (apt-get install libpmix-dev)"
}

openmpi_version() { # its first number
    ompi_info --version | sed -n 's/^Open MPI v\([0-9]*\)\..*/\1/p'
}

status_of_failed_init() { # of a rank in whose MPI_Init Open MPI fails
    [ "$(openmpi_version)" -ge 5 ] && echo 14 || echo 1
}

words_of_failed_init() { # with a component that there is not; Open MPI 5 may end before its longer text has left it
    [ "$(openmpi_version)" -ge 5 ] && echo '\*\*\* An error occurred in MPI_Init' || echo ' *Component: +nosuch'
}

# mpi_program NAME: compiles tests/neighbours/NAME.c once; $program is the result.
mpi_program() {
    needs_openmpi
    compiled "$1" mpicc.openmpi
}

needs_mpich() {
    command -v mpicc.mpich > /dev/null || skip "MPICH is not installed (apt-get install mpich libmpich-dev)"
}

# Without HWLOC_COMPONENTS MPICH's hwloc looks for an X display, by a question to DNS that may take seconds.
mpich_program() { # NAME, as above
    needs_mpich
    export HWLOC_COMPONENTS=-gl
    compiled "$1" mpicc.mpich
}

# A PMI-1 client that does what its arguments say.
pmi1_program() {
    compiled pmi1_client "${CC:-cc}"
}

compiled() { # NAME COMPILER...
    local source=$top/tests/neighbours/$1.c name=$1
    shift
    program=$BUILD/neighbours/$name-$1
    [ ! "$program" -nt "$source" ] || return 0
    mkdir -p "$BUILD/neighbours"
    "$@" -O1 -o "$program.$$" "$source" > "$T/compiler" 2>&1 || fail "cannot compile $name: $(tail -n 3 "$T/compiler")"
    mv "$program.$$" "$program"
}

# Nothing was said on stderr but what Open MPI 5 says of this machine's networks, also under mpirun.
expect_no_mpi_err() {
    sed -i '/btl_tcp_proc.c:.*Unable to find reachable pairing between local and remote interfaces$/d' "$T/err"
    expect_no_err
}

# Every rank of $1 printed its line, and nothing else came out.
expect_all_good() { # SIZE
    expect_status 0
    expect_count "$1" "^[0-9]+/$1 good$" "$T/out"
    expect_no_mpi_err
}

# The PMIx client, with the library's own compiler flags.
pmix_program() {
    [ -e "$BUILD/modules/hvd-pmix" ] || skip "this build has no PMIx (apt-get install libpmix-dev)"
    compiled pmix_client pmix_compiler
}

pmix_compiler() { # -o PROGRAM SOURCE
    # shellcheck disable=SC2046 # words
    ${CC:-cc} "$@" $(pkg-config --cflags --libs pmix)
}
