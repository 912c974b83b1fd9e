#include "agent/ctl/metrics.h"

#include "agent/daemon/metrics/render.h"
#include "common/base/exposition.h"

/* ---- what a job has one of ----------------------------------------------------------------------------- */

static double ranks(const Hvd__JobStatus *s)
{
    double n = 0;
    for (size_t i = 0; i < s->n_rank; i++)
        n += !s->rank[i]->ended;
    return n;
}

static double restarts(const Hvd__JobStatus *s)
{
    return s->epoch;
}

static double seconds(const Hvd__JobStatus *s)
{
    return (double)s->run_ms / 1e3;
}

static double cpu(const Hvd__JobStatus *s)
{
    return (double)s->cpu_ms / 1e3;
}

static double memory(const Hvd__JobStatus *s)
{
    return (double)s->memory_kib * 1024;
}

static double sent(const Hvd__JobStatus *s)
{
    return s->counters ? (double)s->counters->sent : 0;
}

static double received(const Hvd__JobStatus *s)
{
    return s->counters ? (double)s->counters->received : 0;
}

static double stalled(const Hvd__JobStatus *s)
{
    return s->counters ? s->counters->stalls : 0;
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const Hvd__JobStatus *s);
} of_jobs[] = {
    {"hvd_job_ranks", "gauge", "Ranks of the job that run on this host.", ranks},
    {"hvd_job_restarts", "gauge", "How often the job was started again.", restarts},
    {"hvd_job_run_seconds", "gauge", "How long its ranks here have been running.", seconds},
    {"hvd_job_cpu_seconds", "gauge", "Processor time of its ranks here.", cpu},
    {"hvd_job_memory_bytes", "gauge", "Resident memory of its ranks here.", memory},
    {"hvd_job_stalled_tensors", "gauge", "Operations that wait for ranks that have not called them.",
     stalled},
    {"hvd_link_sent_bytes_total", "counter", "Bytes that this host's engine sent to other hosts.", sent},
    {"hvd_link_received_bytes_total", "counter", "Bytes that came from other hosts.", received},
};

/* ---- what it has of each kind -------------------------------------------------------------------------- */

static double operations(const Hvd__Collective *c)
{
    return (double)c->operations;
}

static double bytes(const Hvd__Collective *c)
{
    return (double)c->bytes;
}

static double taken(const Hvd__Collective *c)
{
    return (double)c->ns / 1e9;
}

static const struct {
    const char *name, *help;
    double (*value)(const Hvd__Collective *c);
} of_kinds[] = {
    {"hvd_collective_operations_total", "Operations that ended well, of all ranks here.", operations},
    {"hvd_collective_bytes_total", "Bytes that the ranks here gave.", bytes},
    {"hvd_collective_seconds_total", "Time from the calls to their results; partly an estimate.", taken},
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

void show_metrics(FILE *out, const struct ctl_seen *seen, size_t count, const Hvd__AgentStatus *node)
{
    char user[40];
    if (node)
        render_node(out, &(struct render_node){
                              .slots = node->slots, .taken = node->taken, .drained = node->drained[0]});
    if (node && node->sums && node->now)
        render_jobs(out, node->sums, node->now);
    for (size_t f = 0; f < COUNT(of_jobs); f++) {
        exposition_family(out, of_jobs[f].name, of_jobs[f].type, of_jobs[f].help);
        for (size_t i = 0; i < count; i++) {
            const Hvd__JobStatus *s = seen[i].answer->status;
            const char *labels[] = {"job",  s->job,  "user", show_user(seen[i].uid, user, sizeof user),
                                    "host", s->host, NULL};
            exposition_sample(out, of_jobs[f].name, of_jobs[f].value(s), labels);
        }
    }
    for (size_t f = 0; f < COUNT(of_kinds); f++) {
        exposition_family(out, of_kinds[f].name, "counter", of_kinds[f].help);
        for (size_t i = 0; i < count; i++) {
            const Hvd__JobStatus *s = seen[i].answer->status;
            for (size_t k = 0; s->counters && k < s->counters->n_collective; k++) {
                const Hvd__Collective *c = s->counters->collective[k];
                const char *labels[] = {"job",  s->job,  "user", show_user(seen[i].uid, user, sizeof user),
                                        "host", s->host, "kind", c->kind,
                                        NULL};
                exposition_sample(out, of_kinds[f].name, of_kinds[f].value(c), labels);
            }
        }
    }
}
