/* pmix_fence FILE SIZE - what every library does that finds its peers through PMIx: Init, Put and Commit of a
 * key, Fence with data, Get of every other rank's key, Finalize. Rank 0 appends to FILE the milliseconds of
 * Init, of the fence, of all the Gets, and those from the begin to the end. Fails when a value is not what
 * that rank has put, or when the job has not SIZE ranks. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEY        "bench.address"
#define VALUE_SIZE 64 /* about an address of a network card with what is needed to reach it */

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int check(pmix_status_t rc, const char *what)
{
    if (rc == PMIX_SUCCESS)
        return 0;
    fprintf(stderr, "%s: %s\n", what, PMIx_Error_string(rc));
    return -1;
}

static void value_of(pmix_rank_t rank, char text[VALUE_SIZE])
{
    memset(text, 0, VALUE_SIZE);
    snprintf(text, VALUE_SIZE, "%-*u", VALUE_SIZE - 1, rank);
}

static int put(pmix_rank_t rank)
{
    char text[VALUE_SIZE];
    pmix_value_t value;

    value_of(rank, text);
    PMIX_VALUE_LOAD(&value, text, PMIX_STRING);
    const int rc = check(PMIx_Put(PMIX_GLOBAL, KEY, &value), "PMIx_Put");

    PMIX_VALUE_DESTRUCT(&value);
    return rc < 0 ? rc : check(PMIx_Commit(), "PMIx_Commit");
}

static int fence(const pmix_proc_t *all)
{
    bool collect = true;
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    const int rc = check(PMIx_Fence(all, 1, &info, 1), "PMIx_Fence");

    PMIX_INFO_DESTRUCT(&info);
    return rc;
}

static int get_all(const pmix_proc_t *self, uint32_t size)
{
    for (pmix_rank_t rank = 0; rank < size; rank++) {
        char text[VALUE_SIZE];
        pmix_value_t *value;
        pmix_proc_t proc;

        if (rank == self->rank)
            continue;
        PMIX_LOAD_PROCID(&proc, self->nspace, rank);
        if (check(PMIx_Get(&proc, KEY, NULL, 0, &value), "PMIx_Get") < 0)
            return -1;
        value_of(rank, text);
        if (value->type != PMIX_STRING || strcmp(value->data.string, text) != 0) {
            fprintf(stderr, "rank %u has not put what was got\n", rank);
            return -1;
        }
        PMIX_VALUE_RELEASE(value);
    }
    return 0;
}

static int size_is(const pmix_proc_t *all, const char *wanted)
{
    pmix_value_t *value;

    if (check(PMIx_Get(all, PMIX_JOB_SIZE, NULL, 0, &value), "the job's size") < 0)
        return -1;
    const uint32_t size = value->data.uint32;

    PMIX_VALUE_RELEASE(value);
    if (size == strtoul(wanted, NULL, 10))
        return 0;
    fprintf(stderr, "a job of %u ranks, not %s\n", size, wanted);
    return -1;
}

static int note(const char *path, const double ms[5])
{
    FILE *f = fopen(path, "a");

    if (!f) {
        perror(path);
        return 1;
    }
    fprintf(f, "%.3f %.3f %.3f %.3f\n", ms[1] - ms[0], ms[2] - ms[1], ms[3] - ms[2], ms[4] - ms[0]);
    return fclose(f) != 0;
}

int main(int argc, char **argv)
{
    double ms[5] = {now_ms()};
    pmix_proc_t self, all;

    if (argc != 3) {
        fputs("usage: pmix_fence FILE SIZE\n", stderr);
        return 2;
    }
    if (check(PMIx_Init(&self, NULL, 0), "PMIx_Init") < 0)
        return 1;
    PMIX_LOAD_PROCID(&all, self.nspace, PMIX_RANK_WILDCARD);
    if (size_is(&all, argv[2]) < 0)
        return 1;
    ms[1] = now_ms();
    if (put(self.rank) < 0 || fence(&all) < 0)
        return 1;
    ms[2] = now_ms();
    if (get_all(&self, (uint32_t)strtoul(argv[2], NULL, 10)) < 0)
        return 1;
    ms[3] = now_ms();
    if (check(PMIx_Finalize(NULL, 0), "PMIx_Finalize") < 0)
        return 1;
    ms[4] = now_ms();
    return self.rank == 0 ? note(argv[1], ms) : 0;
}
