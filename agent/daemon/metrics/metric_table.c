#include "agent/daemon/metrics/metric_table.h"
#include "agent/daemon/metrics/metric_table.h"

#include "common/status/gpu_slow.h"
#include "common/base/exposition.h"

const char *const sum_kinds[SUM_KINDS] = {"allreduce", "reducescatter", "allgather",
                                          "alltoall",  "broadcast",     "barrier"};

const char *const sum_causes[SUM_CAUSES] = {
    "none",      "exit_status", "signal",  "out_of_memory", "no_shutdown", "not_started", "launcher_lost",
    "heartbeat", "host_lost",   "timeout", "cancelled",     "other_rank",  "fault",       "session_lost"};

#define NODE_SUM(name, metric, help) {metric, help},
const struct node_sum node_sums[SUM_KIND] = {SUMS_OF_NODE(NODE_SUM)};

#define KIND_SUM(name, field, unit, most, end, node_help, job_help)                                          \
    {"hvd_node_collective_" end,                                                                             \
     "hvd_collective_" end,                                                                                  \
     node_help,                                                                                              \
     job_help,                                                                                               \
     offsetof(Hvd__Collective, field),                                                                       \
     unit,                                                                                                   \
     most},
const struct kind_sum kind_sums[SUM_OF_KIND] = {SUMS_OF_KIND(KIND_SUM)};

uint64_t kind_sum_of(const Hvd__Collective *c, const struct kind_sum *sum)
{
    return *(const uint64_t *)(const void *)((const char *)c + sum->field);
}

#define NODE_GAUGE(field, unit, metric, help) {metric, help, offsetof(Hvd__NodeNow, field), unit},
const struct node_gauge node_gauges[] = {NODE_GAUGES(NODE_GAUGE)};
const size_t node_gauge_count = sizeof node_gauges / sizeof *node_gauges;

/* ---- for Prometheus ------------------------------------------------------------------------------------ */

static void put_labelled(FILE *out, const char *name, const char *label, const char *word, double value)
{
    exposition_sample(out, name, value, (const char *[]){label, word, NULL});
}

void render_node(FILE *out, const struct render_node *n)
{
    exposition_single(out, "hvd_node_slots", "gauge", "Slots of this node.", n->slots);
    exposition_single(out, "hvd_node_slots_leased", "gauge", "Slots that jobs have.", n->taken);
    exposition_single(out, "hvd_node_drained", "gauge", "1: no new jobs are taken.", n->drained);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

static void expose_now(FILE *out, const Hvd__NodeNow *now)
{
    for (size_t i = 0; i < node_gauge_count; i++) {
        const struct node_gauge *g = &node_gauges[i];
        uint32_t value = *(const uint32_t *)(const void *)((const char *)now + g->field);
        exposition_single(out, g->name, "gauge", g->help, value / g->unit);
    }
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
        put_labelled(out, ends, "outcome", outcome_of(of[i]), (double)sum);
    }
    exposition_family(out, causes, "counter", "Jobs that did not end here as they should, by their cause.");
    for (size_t k = 0; k < SUM_CAUSES; k++)
        if (k != HVD__CAUSE__CAUSE_NONE)
            put_labelled(out, causes, "cause", sum_causes[k], (double)ended[k]);
}

static void expose_kinds(FILE *out, const uint64_t sum[SUMS])
{
    for (size_t f = 0; f < SUM_OF_KIND; f++) {
        const struct kind_sum *of = &kind_sums[f];
        exposition_family(out, of->node_name, "counter", of->node_help);
        for (size_t k = 0; k < SUM_KINDS; k++)
            put_labelled(out, of->node_name, "kind", sum_kinds[k],
                         (double)sum[SUM_KIND + k * SUM_OF_KIND + f] / of->unit);
    }
}

static void expose_peers(FILE *out, const Hvd__NodeSums *sums, const char *name, const char *help, bool sent)
{
    exposition_family(out, name, "counter", help);
    for (size_t i = 0; i < sums->n_peer; i++)
        put_labelled(out, name, "peer", i ? sums->peer[i]->host : SUM_PEER_OTHER,
                     (double)(sent ? sums->peer[i]->sent : sums->peer[i]->received));
}

void render_jobs(FILE *out, const Hvd__NodeSums *sums, const Hvd__NodeNow *now)
{
    if (sums->n_sum != SUMS || sums->n_ended != SUM_CAUSES)
        return;
    expose_now(out, now);
    expose_ends(out, sums->ended);
    for (size_t i = 0; i < SUM_KIND; i++)
        exposition_single(out, node_sums[i].name, "counter", node_sums[i].help, (double)sums->sum[i]);
    expose_kinds(out, sums->sum);
    expose_peers(out, sums, "hvd_node_link_sent_bytes_total", "Bytes that engines here sent to other hosts.",
                 true);
    expose_peers(out, sums, "hvd_node_link_received_bytes_total", "Bytes that came from other hosts.", false);
}

/* ---- GPUs ---------------------------------------------------------------------------------------------- */

/* clang-format off */

/* A metric of each GPU `g`. Name, type, help, value; a value below 0 is not known. */
#define OF_GPUS(X) \
    X("hvd_gpu_healthy", "gauge", "0: it keeps new jobs away from the node.", !g->unhealthy[0]) \
    X("hvd_gpu_leased", "gauge", "1: a job has it.", g->taken) \
    X("hvd_gpu_temperature_celsius", "gauge", "Temperature of the GPU.", \
      g->temperature ? (double)g->temperature : -1) \
    X("hvd_gpu_utilisation_ratio", "gauge", "Part of the time that something ran on it.", \
      g->utilisation < 0 ? -1 : g->utilisation / 100.0) \
    X("hvd_gpu_memory_bytes", "gauge", "Memory of the GPU, or of the instance.", \
      g->memory ? (double)g->memory : -1) \
    X("hvd_gpu_memory_used_bytes", "gauge", "Memory that is in use.", \
      g->memory ? (double)g->memory_used : -1) \
    X("hvd_gpu_ecc_corrected_errors", "gauge", \
      "Memory errors that were corrected since the driver was loaded.", g->ecc_corrected) \
    X("hvd_gpu_ecc_uncorrected_errors", "gauge", "Those that were not.", g->ecc_uncorrected) \
    X("hvd_gpu_slowed_by_heat", "gauge", "1: its clocks are lower because of heat.", \
      g->slowed < 0 ? -1 : (g->slowed & GPU_SLOW_BY_HEAT) != 0) \
    X("hvd_gpu_slowed_by_power_cap", "gauge", "1: they are, because it would need more power than it may.", \
      g->slowed < 0 ? -1 : (g->slowed & GPU_SLOW_POWER_CAP) != 0) \
    X("hvd_gpu_slowed_by_hardware", "gauge", "1: they are, by a power brake or the like of the machine.", \
      g->slowed < 0 ? -1 : (g->slowed & (GPU_SLOW_HARDWARE | GPU_SLOW_POWER_BRAKE)) != 0) \
    X("hvd_gpu_xid_total", "counter", "Xid messages in the kernel's log.", g->xids)

/* clang-format on */

#define FAMILY(name, type, help, value) {name, type, help},
static const struct {
    const char *name, *type, *help;
} of_gpus[] = {OF_GPUS(FAMILY)};
#define OF_GPU_COUNT (sizeof of_gpus / sizeof *of_gpus)

#define VALUE(name, type, help, value) (double)(value),
static double value_of_gpu(const Hvd__Gpu *g, size_t metric)
{
    return (const double[OF_GPU_COUNT]){OF_GPUS(VALUE)}[metric];
}

void render_gpus(FILE *out, const Hvd__Gpus *g)
{
    for (size_t f = 0; g->n_gpu && f < OF_GPU_COUNT; f++) {
        exposition_family(out, of_gpus[f].name, of_gpus[f].type, of_gpus[f].help);
        for (size_t i = 0; i < g->n_gpu; i++) {
            char index[24];
            double value = value_of_gpu(g->gpu[i], f);
            snprintf(index, sizeof index, "%zu", i);
            if (value >= 0)
                exposition_sample(out, of_gpus[f].name, value,
                                  (const char *[]){"gpu", index, "uuid", g->gpu[i]->uuid, NULL});
        }
    }
}
