/* hvdctl metrics: one family after the other, with a sample for each job. */
#include "agent/ctl/show.h"
#include "agent/daemon/metrics/metric_table.h"
#include "common/base/exposition.h"

/* clang-format off */

/* A metric of each job `s`. Name, type, help, value. */
#define OF_JOBS(X) \
    X("hvd_job_ranks", "gauge", "Ranks of the job that run on this host.", show_live_ranks(s)) \
    X("hvd_job_restarts", "gauge", "How often the job was started again.", s->epoch) \
    X("hvd_job_run_seconds", "gauge", "How long its ranks here have been running.", (double)s->run_ms / 1e3) \
    X("hvd_job_cpu_seconds", "gauge", "Processor time of its ranks here.", (double)s->cpu_ms / 1e3) \
    X("hvd_job_memory_bytes", "gauge", "Resident memory of its ranks here.", (double)s->memory_kib * 1024) \
    X("hvd_job_stalled_tensors", "gauge", "Operations that wait for ranks that have not called them.", \
      s->counters ? s->counters->stalls : 0) \
    X("hvd_link_sent_bytes_total", "counter", "Bytes that this host's engine sent to other hosts.", \
      s->counters ? s->counters->sent : 0) \
    X("hvd_link_received_bytes_total", "counter", "Bytes that came from other hosts.", \
      s->counters ? s->counters->received : 0)

/* clang-format on */

#define FAMILY(name, type, help, value) {name, type, help},
static const struct {
    const char *name, *type, *help;
} of_jobs[] = {OF_JOBS(FAMILY)};
#define COUNT (sizeof of_jobs / sizeof *of_jobs)

#define VALUE(name, type, help, value) (double)(value),
static double value_of_job(const Hvd__JobStatus *s, size_t metric)
{
    return (const double[COUNT]){OF_JOBS(VALUE)}[metric];
}

void show_metrics(FILE *out, const struct ctl_seen *seen, size_t count, const Hvd__AgentStatus *node)
{
    char user[40];
    if (node)
        render_node(out, &(struct render_node){
                             .slots = node->slots, .taken = node->taken, .drained = node->drained[0]});
    if (node && node->sums && node->now)
        render_jobs(out, node->sums, node->now);
    for (size_t f = 0; f < COUNT; f++) {
        exposition_family(out, of_jobs[f].name, of_jobs[f].type, of_jobs[f].help);
        for (size_t i = 0; i < count; i++) {
            const Hvd__JobStatus *s = seen[i].answer->status;
            const char *labels[] = {"job",  s->job,  "user", show_user(seen[i].uid, user, sizeof user),
                                    "host", s->host, NULL};
            exposition_sample(out, of_jobs[f].name, value_of_job(s, f), labels);
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
