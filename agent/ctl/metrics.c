/* hvdctl metrics: one family after the other, with a sample for each job. */
#include "agent/ctl/show.h"
#include "agent/daemon/metrics/metric_table.h"
#include "common/base/exposition.h"

static double live_ranks(const Hvd__JobStatus *s)
{
    return show_live_ranks(s);
}

static double restarts_of(const Hvd__JobStatus *s)
{
    return s->epoch;
}

static double run_seconds(const Hvd__JobStatus *s)
{
    return (double)s->run_ms / 1e3;
}

static double cpu_seconds(const Hvd__JobStatus *s)
{
    return (double)s->cpu_ms / 1e3;
}

static double memory_bytes(const Hvd__JobStatus *s)
{
    return (double)s->memory_kib * 1024;
}

static double bytes_sent(const Hvd__JobStatus *s)
{
    return s->counters ? (double)s->counters->sent : 0;
}

static double bytes_received(const Hvd__JobStatus *s)
{
    return s->counters ? (double)s->counters->received : 0;
}

static double stalled_tensors(const Hvd__JobStatus *s)
{
    return s->counters ? s->counters->stalls : 0;
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const Hvd__JobStatus *s);
} of_jobs[] = {
    {"hvd_job_ranks", "gauge", "Ranks of the job that run on this host.", live_ranks},
    {"hvd_job_restarts", "gauge", "How often the job was started again.", restarts_of},
    {"hvd_job_run_seconds", "gauge", "How long its ranks here have been running.", run_seconds},
    {"hvd_job_cpu_seconds", "gauge", "Processor time of its ranks here.", cpu_seconds},
    {"hvd_job_memory_bytes", "gauge", "Resident memory of its ranks here.", memory_bytes},
    {"hvd_job_stalled_tensors", "gauge", "Operations that wait for ranks that have not called them.",
     stalled_tensors},
    {"hvd_link_sent_bytes_total", "counter", "Bytes that this host's engine sent to other hosts.",
     bytes_sent},
    {"hvd_link_received_bytes_total", "counter", "Bytes that came from other hosts.", bytes_received},
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
    for (size_t f = 0; f < SUM_OF_KIND; f++) {
        const struct kind_sum *of = &kind_sums[f];
        exposition_family(out, of->job_name, "counter", of->job_help);
        for (size_t i = 0; i < count; i++) {
            const Hvd__JobStatus *s = seen[i].answer->status;
            for (size_t k = 0; s->counters && k < s->counters->n_collective; k++) {
                const Hvd__Collective *c = s->counters->collective[k];
                const char *labels[] = {"job",  s->job,  "user", show_user(seen[i].uid, user, sizeof user),
                                        "host", s->host, "kind", c->kind,
                                        NULL};
                exposition_sample(out, of->job_name, (double)kind_sum_of(c, of) / of->unit, labels);
            }
        }
    }
}
