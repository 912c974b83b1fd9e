#include "agent/daemon/metrics/render.h"

#include "agent/daemon/metrics/metric_names.h"
#include "common/base/exposition.h"

static void gauge(FILE *out, const char *name, const char *help, double value)
{
    exposition_family(out, name, "gauge", help);
    exposition_sample(out, name, value, NULL);
}

static void counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    exposition_family(out, name, "counter", help);
    exposition_sample(out, name, (double)value, NULL);
}

static void labelled(FILE *out, const char *name, const char *label, const char *word, double value)
{
    exposition_sample(out, name, value, (const char *[]){label, word, NULL});
}

void render_node(FILE *out, const struct render_node *n)
{
    gauge(out, "hvd_node_slots", "Slots of this node.", n->slots);
    gauge(out, "hvd_node_slots_leased", "Slots that jobs have.", n->taken);
    gauge(out, "hvd_node_drained", "1: no new jobs are taken.", n->drained);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static void expose_now(FILE *out, const Hvd__NodeNow *now)
{
    gauge(out, "hvd_node_jobs_running", "Jobs that run here.", now->running);
    gauge(out, "hvd_node_jobs_waiting", "Jobs that wait for slots.", now->waiting);
    gauge(out, "hvd_node_workers", "Ranks that run here.", now->ranks);
    gauge(out, "hvd_node_stalled_tensors", "Operations that wait for ranks that have not called them.",
          now->stalls);
    gauge(out, "hvd_node_launcher_silence_seconds", "For how long a job here has not heard its launcher.",
          now->silence_ms / 1e3);
    gauge(out, "hvd_node_report_age_seconds", "For how long a session here has not told its figures.",
          now->report_ms / 1e3);
}

static const char *outcome_of(size_t cause)
{
    return cause == HVD__CAUSE__CAUSE_NONE           ? "done"
           : cause == HVD__CAUSE__CAUSE_CANCELLED    ? "cancelled"
           : cause == HVD__CAUSE__CAUSE_SESSION_LOST ? "lost"
                                                     : "failed";
}

static void expose_ends(FILE *out, const uint64_t ended[SUM_CAUSES])
{
    static const size_t of[] = {HVD__CAUSE__CAUSE_NONE, HVD__CAUSE__CAUSE_FAULT, HVD__CAUSE__CAUSE_CANCELLED,
                                HVD__CAUSE__CAUSE_SESSION_LOST}; /* one of each outcome */
    static const char ends[] = "hvd_node_jobs_ended_total", causes[] = "hvd_node_failures_total";
    exposition_family(out, ends, "counter", "Jobs that have ended here, by how.");
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < SUM_CAUSES; k++)
            sum += outcome_of(k) == outcome_of(of[i]) ? ended[k] : 0;
        labelled(out, ends, "outcome", outcome_of(of[i]), (double)sum);
    }
    exposition_family(out, causes, "counter", "Jobs that did not end here as they should, by their cause.");
    for (size_t k = 0; k < SUM_CAUSES; k++)
        if (k != HVD__CAUSE__CAUSE_NONE)
            labelled(out, causes, "cause", sum_causes[k], (double)ended[k]);
}

static void expose_kinds(FILE *out, const uint64_t sum[SUMS])
{
    static const struct {
        const char *name, *help;
        double unit;
    } of[SUM_OF_KIND] = {
        [SUM_OPERATIONS] = {"hvd_node_collective_operations_total",
                            "Operations of all ranks that ended well.", 1},
        [SUM_BYTES] = {"hvd_node_collective_bytes_total", "Bytes that the ranks gave.", 1},
        [SUM_NS] = {"hvd_node_collective_seconds_total",
                    "Time from the calls to their results; partly an estimate.", 1e9},
    };
    for (size_t f = 0; f < SUM_OF_KIND; f++) {
        exposition_family(out, of[f].name, "counter", of[f].help);
        for (size_t k = 0; k < SUM_KINDS; k++)
            labelled(out, of[f].name, "kind", sum_kinds[k],
                     (double)sum[SUM_KIND + k * SUM_OF_KIND + f] / of[f].unit);
    }
}

static void expose_peers(FILE *out, const Hvd__NodeSums *sums, const char *name, const char *help, bool sent)
{
    exposition_family(out, name, "counter", help);
    for (size_t i = 0; i < sums->n_peer; i++)
        labelled(out, name, "peer", i ? sums->peer[i]->host : SUM_PEER_OTHER,
                 (double)(sent ? sums->peer[i]->sent : sums->peer[i]->received));
}

void render_jobs(FILE *out, const Hvd__NodeSums *sums, const Hvd__NodeNow *now)
{
    if (sums->n_sum != SUMS || sums->n_ended != SUM_CAUSES)
        return;
    expose_now(out, now);
    expose_ends(out, sums->ended);
    counter(out, "hvd_node_workers_started_total", "Ranks that were started here.", sums->sum[SUM_STARTED]);
    counter(out, "hvd_node_restarts_total", "Jobs that were started again and came here.",
            sums->sum[SUM_RESTARTS]);
    counter(out, "hvd_node_heartbeats_missed_total", "Heartbeats of launchers that did not come in time.",
            sums->sum[SUM_MISSED]);
    expose_kinds(out, sums->sum);
    expose_peers(out, sums, "hvd_node_link_sent_bytes_total", "Bytes that engines here sent to other hosts.",
                 true);
    expose_peers(out, sums, "hvd_node_link_received_bytes_total", "Bytes that came from other hosts.", false);
}
/* ---- GPUs ---------------------------------------------------------------------------------------------- */

static double temperature(const Hvd__Gpu *g)
{
    return g->temperature ? (double)g->temperature : -1;
}

static double used(const Hvd__Gpu *g)
{
    return g->memory ? (double)g->memory_used : -1;
}

static double memory(const Hvd__Gpu *g)
{
    return g->memory ? (double)g->memory : -1;
}

static double utilisation(const Hvd__Gpu *g)
{
    return g->utilisation < 0 ? -1 : g->utilisation / 100.0;
}

static double ecc_uncorrected(const Hvd__Gpu *g)
{
    return (double)g->ecc_uncorrected;
}

static double ecc_corrected(const Hvd__Gpu *g)
{
    return (double)g->ecc_corrected;
}

static double xids(const Hvd__Gpu *g)
{
    return (double)g->xids;
}

static double taken(const Hvd__Gpu *g)
{
    return g->taken;
}

static double healthy(const Hvd__Gpu *g)
{
    return !g->unhealthy[0];
}

static const struct {
    const char *name, *type, *help;
    double (*value)(const Hvd__Gpu *g); /* below 0: not known */
} of_gpus[] = {
    {"hvd_gpu_healthy", "gauge", "0: it keeps new jobs away from the node.", healthy},
    {"hvd_gpu_leased", "gauge", "1: a job has it.", taken},
    {"hvd_gpu_temperature_celsius", "gauge", "Temperature of the GPU.", temperature},
    {"hvd_gpu_utilisation_ratio", "gauge", "Part of the time that something ran on it.", utilisation},
    {"hvd_gpu_memory_bytes", "gauge", "Memory of the GPU, or of the instance.", memory},
    {"hvd_gpu_memory_used_bytes", "gauge", "Memory that is in use.", used},
    {"hvd_gpu_ecc_corrected_errors", "gauge",
     "Memory errors that were corrected since the driver was loaded.", ecc_corrected},
    {"hvd_gpu_ecc_uncorrected_errors", "gauge", "Those that were not.", ecc_uncorrected},
    {"hvd_gpu_xid_total", "counter", "Xid messages in the kernel's log.", xids},
};

void render_gpus(FILE *out, const Hvd__Gpus *g)
{
    for (size_t f = 0; g->n_gpu && f < sizeof of_gpus / sizeof *of_gpus; f++) {
        exposition_family(out, of_gpus[f].name, of_gpus[f].type, of_gpus[f].help);
        for (size_t i = 0; i < g->n_gpu; i++) {
            char index[24];
            double value = of_gpus[f].value(g->gpu[i]);
            snprintf(index, sizeof index, "%zu", i);
            if (value >= 0)
                exposition_sample(out, of_gpus[f].name, value,
                                  (const char *[]){"gpu", index, "uuid", g->gpu[i]->uuid, NULL});
        }
    }
}
