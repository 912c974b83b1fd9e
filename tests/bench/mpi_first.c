/* mpi_first - the shortest MPI program with a result: MPI_Init, an allreduce of 4 bytes, MPI_Finalize. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int one = 1, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &one, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (one != ranks)
        fprintf(stderr, "mpi_first: the sum over %d ranks is %d\n", ranks, one);
    MPI_Finalize();
    return one != ranks;
}
