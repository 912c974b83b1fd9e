/* A rank of a job of several programs: its number among them (MPI_APPNUM), as MPI and the others' sum have
 * it. Prints "RANK of program NUMBER, sum SUM". */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, sum = 0, found = 0, *number = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
    int own = found ? *number : -1;
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of program %d, sum %d\n", rank, own, sum);
    MPI_Finalize();
    return 0;
}
