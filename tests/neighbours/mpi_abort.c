/* mpi_abort RANK CODE: that rank calls MPI_Abort with that code while the others wait for it; with code 0 it
 * makes a mistake that MPI takes for fatal. Rank -1 is nobody: all wait, for a signal, and say so. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, who = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 0,
              code = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (who < 0) {
        printf("%d waits\n", rank);
        fflush(stdout);
        pause();
    }
    if (rank == who && code == 0)
        MPI_Send(&rank, 1, MPI_INT, 9999, 0, MPI_COMM_WORLD);
    if (rank == who) {
        fprintf(stderr, "the last words of rank %d\n", rank);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
