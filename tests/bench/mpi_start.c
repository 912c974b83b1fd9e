/* mpi_start FILE SIZE - the shortest MPI program: MPI_Init and MPI_Finalize. Rank 0 appends to FILE the
 * milliseconds of MPI_Init, and those from its begin to the end of MPI_Finalize. Fails when the world has not
 * SIZE ranks: a launcher that the library does not recognize makes one world of each rank, which would be
 * measured as a fast start. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int note(const char *path, double init, double all)
{
    FILE *f = fopen(path, "a");

    if (!f) {
        perror(path);
        return 1;
    }
    fprintf(f, "%.3f %.3f\n", init, all);
    return fclose(f) != 0;
}

int main(int argc, char **argv)
{
    const double before = now_ms();
    double init;
    int rank, size;

    if (argc != 3) {
        fputs("usage: mpi_start FILE SIZE\n", stderr);
        return 2;
    }
    MPI_Init(&argc, &argv);
    init = now_ms() - before;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Finalize();
    if (size != strtol(argv[2], NULL, 10)) {
        fprintf(stderr, "a world of %d ranks, not %s\n", size, argv[2]);
        return 1;
    }
    return rank == 0 ? note(argv[1], init, now_ms() - before) : 0;
}
