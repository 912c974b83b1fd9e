/* A token around all ranks, a sum over all, a sum over those of the same parity; 1 MiB from rank 0 to all.
 * Prints one line a rank when all is as it must be. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (1 << 20)

static int go_around(int rank, int size)
{
    int token = 1, left = (rank + size - 1) % size, right = (rank + 1) % size;
    if (rank == 0)
        MPI_Send(&token, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    MPI_Recv(&token, 1, MPI_INT, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token++;
    if (rank != 0)
        MPI_Send(&token, 1, MPI_INT, right, 0, MPI_COMM_WORLD);
    return rank == 0 ? token == size + 1 : token == rank + 1;
}

static int sum_of(MPI_Comm comm, int value)
{
    int sum = 0;
    MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static int halves(int rank, int size)
{
    MPI_Comm half;
    int wanted = 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    for (int i = rank % 2; i < size; i += 2)
        wanted += i;
    int good = sum_of(half, rank) == wanted;
    MPI_Comm_free(&half);
    return good;
}

static int megabyte(int rank)
{
    unsigned char *bytes = malloc(BYTES);
    int good = bytes != NULL;
    if (bytes) {
        memset(bytes, rank == 0 ? 7 : 0, BYTES);
        MPI_Bcast(bytes, BYTES, MPI_BYTE, 0, MPI_COMM_WORLD);
        for (int i = 0; i < BYTES; i++)
            good = good && bytes[i] == 7;
    }
    free(bytes);
    return good;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int ring = go_around(rank, size);
    int sum = sum_of(MPI_COMM_WORLD, rank) == size * (size - 1) / 2;
    int split = halves(rank, size), bcast = megabyte(rank);
    if (ring && sum && split && bcast)
        printf("%d/%d good\n", rank, size);
    else
        printf("%d/%d ring %d sum %d split %d bcast %d\n", rank, size, ring, sum, split, bcast);
    MPI_Finalize();
    return 0;
}
