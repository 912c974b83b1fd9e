/* Several hosts' backends over real links in one process, and what their sums must be. */
#pragma once

#include "collectives/algorithms/endpoint.h"
#include "tests/unit/links_job.h"

#define USED_BY_SOME __attribute__((unused))

static USED_BY_SOME void job_up(struct job *job, uint32_t hosts, uint64_t eager_bytes)
{
    job_new(job, hosts, 2000, 5000);
    connect_all(job);
    RUN_UNTIL(job, TOTAL(job, ready) == hosts * (hosts - 1));
    for (uint32_t i = 0; i < hosts; i++) {
        struct backend_tcp_config c = {.links = job->host[i].links,
                                       .wire = &links_wire,
                                       .self = i,
                                       .hosts = hosts,
                                       .eager_bytes = eager_bytes};
        job->host[i].backend = backend_tcp_new(&c, NULL);
        ck_assert_ptr_nonnull(job->host[i].backend);
    }
}

static void on_done(void *ctx, const struct err *error)
{
    struct host *h = ctx;
    h->done++;
    if (error) {
        h->failed++;
        h->done_error = *error;
    }
}

static USED_BY_SOME void on_range(void *ctx, uint64_t offset, uint64_t size)
{
    struct host *h = ctx;
    h->final_bytes += size;
}

static USED_BY_SOME void all_went_well(struct job *job)
{
    for (uint32_t i = 0; i < job->hosts; i++)
        ck_assert_msg(job->host[i].failed == 0, "host %u: %s; %s; %s", i, job->host[i].done_error.text,
                      job->host[i].broken.text, job->host[i].why.text);
}

static float value(uint32_t host, uint64_t i)
{
    return (float)((i * 2654435761u + host * 40503u) % 10007) / 7.0f - 700.0f;
}

/* The result of a reduction in the order of the hosts, bit for bit. */
static float expected(uint32_t hosts, uint64_t i, hvd_op op)
{
    float v = value(0, i);
    for (uint32_t h = 1; h < hosts; h++) {
        float w = value(h, i);
        v = op == HVD_MIN ? (w < v ? w : v) : op == HVD_MAX ? (w > v ? w : v) : v + w;
    }
    return op == HVD_AVERAGE ? v / (float)hosts : v;
}

/* One assertion for all of it: Check writes each one down. */
static USED_BY_SOME void check_bits(const float *data, const float *want, uint64_t count, const char *of,
                                    uint32_t host)
{
    uint64_t i = 0;
    while (i < count && memcmp(&data[i], &want[i], 4) == 0)
        i++;
    ck_assert_msg(i == count, "element %llu of %llu at host %u is %g, not %s %g", (unsigned long long)i,
                  (unsigned long long)count, host, i < count ? (double)data[i] : 0, of,
                  i < count ? (double)want[i] : 0);
}
