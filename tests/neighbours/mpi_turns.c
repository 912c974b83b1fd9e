/* mpi_turns MICROSECONDS: 200 sums of all ranks, of which half take no longer than that. Ranks that share
 * processors and do not give theirs away while they wait take some milliseconds for each. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define TURNS 200

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

int main(int argc, char **argv)
{
    static double us[TURNS];
    int rank, size, sum;
    double most = argc > 1 ? strtod(argv[1], NULL) : 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < TURNS; i++) {
        double began = MPI_Wtime();
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        us[i] = (MPI_Wtime() - began) * 1e6;
    }
    qsort(us, TURNS, sizeof *us, compare);
    if (us[TURNS / 2] <= most)
        printf("%d/%d good\n", rank, size);
    else
        printf("%d/%d: %.0f us, the longest %.0f us\n", rank, size, us[TURNS / 2], us[TURNS - 1]);
    MPI_Finalize();
    return 0;
}
