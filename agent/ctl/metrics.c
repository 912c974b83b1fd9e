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

/* ---- ranks --------------------------------------------------------------------------------------------- */

static void sample_of_rank(FILE *out, const char *name, const struct ctl_seen *seen, uint32_t rank,
                           double value)
{
    const Hvd__JobStatus *s = seen->answer->status;
    char user[40], number[16];
    snprintf(number, sizeof number, "%u", rank);
    const char *labels[] = {"job",  s->job, "user", show_user(seen->uid, user, sizeof user), "host", s->host,
                            "rank", number, NULL};
    exposition_sample(out, name, value, labels);
}

static void show_rank_times(FILE *out, const struct ctl_seen *seen, size_t count)
{
    const char *name = "hvd_rank_operation_seconds_total";
    exposition_family(out, name, "counter",
                      "Time of a rank in operations. It grows least for the rank that the others wait for.");
    for (size_t i = 0; i < count; i++) {
        const Hvd__Counters *c = seen[i].answer->status->counters;
        for (size_t k = 0; c && k < c->n_rank; k++)
            sample_of_rank(out, name, &seen[i], c->rank[k]->rank, (double)c->rank[k]->ns / 1e9);
    }
}

static double value_of_lateness(const Hvd__Lateness *l, size_t metric)
{
    return (const double[]){l->recent_share_ppm / 1e6, (double)l->median_ns / 1e9,
                            (double)l->worst_ns / 1e9}[metric];
}

void show_lateness_metrics(FILE *out, const struct ctl_seen *seen, size_t count)
{
    static const struct {
        const char *name, *help;
    } family[] = {{"hvd_rank_waited_for_ratio",
                   "Of the last minute's waiting for others, the part that was for this rank."},
                  {"hvd_rank_late_median_seconds",
                   "How late the rank was, in the median of the operations it was late in."},
                  {"hvd_rank_late_worst_seconds", "How late the rank was at worst."}};
    for (size_t f = 0; f < sizeof family / sizeof *family; f++) {
        exposition_family(out, family[f].name, "gauge", family[f].help);
        for (size_t i = 0; i < count; i++) {
            const Hvd__JobStatus *s = seen[i].answer->status;
            for (size_t k = 0; k < s->n_rank; k++)
                if (s->rank[k]->lateness)
                    sample_of_rank(out, family[f].name, &seen[i], s->rank[k]->rank,
                                   value_of_lateness(s->rank[k]->lateness, f));
        }
    }
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
    show_rank_times(out, seen, count);
}
