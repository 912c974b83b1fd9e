/* hvd_bench - how long the engine takes: one operation by size, a model's gradients, or a growing number of
 * tensors. Runs under hvdrun; rank 0 prints a line for each. This file is its command line; how it measures
 * is in bench_run.c. */
#include "tests/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES_MAX      (UINT64_C(1) << 34)
#define ITERATIONS_MAX 1000000

static const struct choice buffers[] = {{"malloc", 0, 0}, {"arena", 1, 0}, {NULL, 0, 0}};

static const struct choice *choose(struct options *o, const char *option, const struct choice *list,
                                   const char *value)
{
    char names[160] = "";
    size_t used = 0;

    for (const struct choice *c = list; c->name != NULL; c++) {
        if (strcmp(c->name, value) == 0)
            return c;
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", c->name);
    }
    snprintf(o->fault, sizeof o->fault, "%s is one of %s, not '%.64s'", option, names, value);
    return NULL;
}

static int op_of(struct options *o, const char *value)
{
    o->op = bench_op_named(value);
    if (o->op == NULL)
        snprintf(o->fault, sizeof o->fault, "--op is one of %s, not '%.64s'", bench_op_names(), value);
    return o->op != NULL ? 0 : -1;
}

static int model_of(struct options *o, const char *value)
{
    o->model = strcmp(value, "resnet50") == 0;
    if (!o->model)
        snprintf(o->fault, sizeof o->fault, "--model is resnet50, not '%.64s'", value);
    return o->model ? 0 : -1;
}

static int count_of(struct options *o, const char *option, const char *value, int low, int *to)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || n < low || n > ITERATIONS_MAX) {
        snprintf(o->fault, sizeof o->fault, "%s is %d to %d, not '%.64s'", option, low, ITERATIONS_MAX,
                 value);
        return -1;
    }
    *to = (int)n;
    return 0;
}

/* "4,64K,1M": powers of 1024. */
static int sizes_of(struct options *o, const char *option, const char *value, size_t *list, int *length)
{
    const char *at = value;

    *length = 0;
    for (;;) {
        char *end;
        unsigned long long n;
        int shift = 0;

        errno = 0;
        n = strtoull(at, &end, 10);
        if (*end == 'K' || *end == 'M' || *end == 'G')
            shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 30;
        if (*at < '0' || *at > '9' || errno != 0 || n == 0 || n > BYTES_MAX >> shift || *length == SIZES_MAX)
            break;
        list[(*length)++] = (size_t)(n << shift);
        end += shift > 0;
        if (*end == '\0')
            return 0;
        if (*end != ',')
            break;
        at = end + 1;
    }
    snprintf(o->fault, sizeof o->fault, "%s is up to %d sizes from 1 to 16G like 4,64K,1M, not '%.64s'",
             option, SIZES_MAX, value);
    return -1;
}

static int set_option(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "--op") == 0)
        return op_of(o, value);
    if (strcmp(name, "--model") == 0)
        return model_of(o, value);
    if (strcmp(name, "--buffer") == 0)
        return (o->buffer = choose(o, name, buffers, value)) != NULL ? 0 : -1;
    if (strcmp(name, "--dtype") == 0)
        return (o->dtype = choose(o, name, bench_dtypes, value)) != NULL ? 0 : -1;
    if (strcmp(name, "--bytes") == 0)
        return sizes_of(o, name, value, o->bytes, &o->sizes);
    if (strcmp(name, "--growth") == 0)
        return sizes_of(o, name, value, o->names, &o->growths);
    if (strcmp(name, "--iterations") == 0)
        return count_of(o, name, value, 1, &o->iterations);
    if (strcmp(name, "--warmup") == 0)
        return count_of(o, name, value, 0, &o->warmup);
    if (strcmp(name, "--limit-ms") == 0)
        return count_of(o, name, value, 1, &o->limit_ms);
    if (strcmp(name, "--idle") == 0)
        return count_of(o, name, value, 1, &o->idle_s);
    snprintf(o->fault, sizeof o->fault, "unknown option '%.64s' (--help lists them)", name);
    return -1;
}

static bool set_flag(struct options *o, const char *name)
{
    if (strcmp(name, "--json") == 0)
        o->json = true;
    else if (strcmp(name, "--list") == 0)
        o->list = true;
    else if (strcmp(name, "--help") == 0)
        o->help = true;
    else
        return false;
    return true;
}

/* Each is right by itself; all of them together? */
static int fit_together(struct options *o)
{
    const bool many = o->model || o->growths > 0;

    if (o->model && o->growths > 0)
        snprintf(o->fault, sizeof o->fault, "--model and --growth are two measurements: give one of them");
    else if (many && o->op != bench_op_named("allreduce"))
        snprintf(o->fault, sizeof o->fault, "--model and --growth are allreduces, not --op %s",
                 bench_op_name(o->op));
    else if (many && o->dtype->value != HVD_FLOAT32)
        snprintf(o->fault, sizeof o->fault, "--model and --growth have f32 tensors, not %s", o->dtype->name);
    else if (!bench_op_takes(o->op, o->dtype))
        snprintf(o->fault, sizeof o->fault, "--op %s is for f16, bf16, f32 and f64, not %s",
                 bench_op_name(o->op), o->dtype->name);
    for (int i = 0; i < o->sizes && o->fault[0] == '\0'; i++)
        if (o->bytes[i] % o->dtype->size != 0)
            snprintf(o->fault, sizeof o->fault, "--bytes %zu is not a multiple of %zu (%s)", o->bytes[i],
                     o->dtype->size, o->dtype->name);
    return o->fault[0] == '\0' ? 0 : -1;
}

static int parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.op = bench_op_named("allreduce"),
                          .buffer = buffers,
                          .iterations = -1,
                          .warmup = -1,
                          .limit_ms = 1000};
    o->dtype = choose(o, "--dtype", bench_dtypes, "f32");
    if (sizes_of(o, "--bytes", "4,4K,64K,1M,16M,64M", o->bytes, &o->sizes) != 0)
        return -1;
    for (int i = 1; i < argc; i++) {
        if (set_flag(o, argv[i]))
            continue;
        if (i + 1 == argc) {
            snprintf(o->fault, sizeof o->fault,
                     "'%.64s' is unknown or needs a value (--help lists the options)", argv[i]);
            return -1;
        }
        if (set_option(o, argv[i], argv[i + 1]) != 0)
            return -1;
        i++;
    }
    return fit_together(o);
}

static void help(void)
{
    printf("usage: hvdrun -np N hvd_bench [option ...]\n"
           "  --op NAME                   (allreduce) one of\n");
    bench_op_help();
    printf("  --bytes N[K|M|G],...        (4,4K,64K,1M,16M,64M)\n"
           "  --dtype T                   u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16 f32 f64 bool (f32)\n"
           "  --buffer malloc|arena       ordinary memory or hvd_alloc's (malloc)\n"
           "  --model resnet50            an allreduce of each of its gradients, all started, then all "
           "waited for\n"
           "  --growth N,...              so many allreduces of the first of --bytes at once; times are per "
           "tensor\n"
           "  --iterations N, --warmup N  (by size, and what --limit-ms leaves time for)\n"
           "  --limit-ms N                about so long for each line (1000)\n"
           "  --idle S                    at the end says so and sleeps S seconds\n"
           "  --json                      an object a line: median, p10 and p90 are over the iterations, "
           "each as\n"
           "                              long as its slowest rank took\n"
           "  --list                      prints the sizes of the model's gradients, without hvdrun\n"
           "  --help\n"
           "Every result is checked before it is timed. Exit status 2: a wrong option, 1: anything else "
           "failed.\n");
}

static void run(const struct options *o)
{
    if (o->growths > 0)
        bench_growth_run(o);
    else if (o->model)
        bench_model_run(o);
    else
        bench_ops_run(o);
    if (o->idle_s > 0) {
        bench_check(hvd_barrier(NULL), "hvd_barrier");
        if (bench_rank == 0) {
            puts("idle");
            fflush(stdout);
        }
        nanosleep(&(struct timespec){.tv_sec = o->idle_s}, NULL);
    }
}

/* Of all ranks one says it, and none leaves before it was said: who is first to leave ends the others. */
static int refuse(const struct options *o)
{
    const bool alone = getenv("HVD_RANK") == NULL; /* hvdrun did not start it */

    if (!alone)
        bench_check(hvd_init(), "hvd_init");
    if (alone || hvd_rank() == 0)
        fprintf(stderr, "hvd_bench: %s\n", o->fault);
    if (!alone)
        bench_check(hvd_shutdown(), "hvd_shutdown");
    return 2;
}

int main(int argc, char **argv)
{
    struct options o;

    if (parse(argc, argv, &o) != 0)
        return refuse(&o);
    if (o.help || o.list) {
        if (o.help)
            help();
        else
            bench_model_list();
        return 0;
    }
    bench_check(hvd_init(), "hvd_init");
    bench_rank = hvd_rank();
    bench_size = hvd_size();
    run(&o);
    bench_check(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
