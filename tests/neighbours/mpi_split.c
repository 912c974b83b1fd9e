/* mpi_split: the ranks that share a part of the machine with this rank, by MPI_Comm_split_type with OpenMPI's
 * own kinds. A line a kind: its name, this rank, the number of ranks in the set, the first of them. The last
 * lines are values of MPI_INFO_ENV. */
#include <mpi.h>
#include <stdio.h>

static const struct {
    const char *name;
    int kind;
} kinds[] = {
    {"shared", MPI_COMM_TYPE_SHARED}, {"node", OMPI_COMM_TYPE_NODE},  {"socket", OMPI_COMM_TYPE_SOCKET},
    {"numa", OMPI_COMM_TYPE_NUMA},    {"l3", OMPI_COMM_TYPE_L3CACHE}, {"l2", OMPI_COMM_TYPE_L2CACHE},
    {"l1", OMPI_COMM_TYPE_L1CACHE},   {"core", OMPI_COMM_TYPE_CORE},  {"thread", OMPI_COMM_TYPE_HWTHREAD},
};

static void show_set(const char *name, int kind, int rank)
{
    MPI_Comm set;
    int size, first;
    MPI_Comm_split_type(MPI_COMM_WORLD, kind, 0, MPI_INFO_NULL, &set);
    MPI_Comm_size(set, &size);
    MPI_Allreduce(&rank, &first, 1, MPI_INT, MPI_MIN, set);
    printf("%s %d: %d from %d\n", name, rank, size, first);
    MPI_Comm_free(&set);
}

static void show_info(const char *key, int rank)
{
    char value[MPI_MAX_INFO_VAL + 1] = "";
    int found = 0;
    MPI_Info_get(MPI_INFO_ENV, key, MPI_MAX_INFO_VAL, value, &found);
    printf("info %s %d: %s\n", key, rank, found ? value : "-");
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        show_set(kinds[i].name, kinds[i].kind, rank);
    show_info("wdir", rank);
    show_info("maxprocs", rank);
    MPI_Finalize();
    return 0;
}
