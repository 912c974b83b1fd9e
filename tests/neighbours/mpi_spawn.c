/* Ranks that ask for another process, and do not expect that their library refuses. */
#include <mpi.h>

int main(int argc, char **argv)
{
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
    MPI_Finalize();
    return 0;
}
