/* hvdctl gpus: the table of the GPUs of a node, and the same as JSON. */
#include "agent/ctl/show.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/json.h"
#include "common/protocol/message.h"
#include "common/status/gpu_slow.h"

/* ---- for people ---------------------------------------------------------------------------------------- */

static const char *or_unknown(const char *text)
{
    return text[0] ? text : "?";
}

static const char *format_number(char text[32], bool known, const char *fmt, double value)
{
    if (known)
        snprintf(text, 32, fmt, value);
    else
        snprintf(text, 32, "?");
    return text;
}

static void show_memory(const Hvd__Gpu *g)
{
    char text[32];
    double gib = 1u << 30;
    if (g->memory)
        snprintf(text, sizeof text, "%.1f/%.0f GiB", (double)g->memory_used / gib, (double)g->memory / gib);
    else
        snprintf(text, sizeof text, "?");
    printf(" %14s", text);
}

static void show_gpu(size_t index, const Hvd__Gpu *g)
{
    char numa[32], hot[32], use[32], ecc[32], holder[160], slowed[GPU_SLOW_TEXT];
    gpu_slow_text(g->slowed < 0 ? 0 : (uint64_t)g->slowed, slowed);
    snprintf(holder, sizeof holder, "%s%s%s",
             g->job[0]  ? g->job
             : g->taken ? "taken"
                        : "-",
             g->job[0] ? " " : "", g->user);
    printf("%5zu  %-24.40s  %-40s  %-12s %4s", index, or_unknown(g->name), or_unknown(g->uuid),
           or_unknown(g->bus), format_number(numa, g->numa >= 0, "%.0f", g->numa));
    show_memory(g);
    printf(" %5s %5s %5s %5" PRIu64 "  %-11s  %-24s  %s\n",
           format_number(hot, g->temperature > 0, "%.0f C", g->temperature),
           format_number(use, g->utilisation >= 0, "%.0f%%", g->utilisation),
           format_number(ecc, g->ecc_uncorrected >= 0, "%.0f", (double)g->ecc_uncorrected), g->xids,
           g->slowed < 0 ? "?"
           : slowed[0]   ? slowed
                         : "-",
           holder, g->unhealthy[0] ? g->unhealthy : "well");
}

void show_gpus(Hvd__Gpus *g)
{
    message_printable(&g->base);
    if (g->n_gpu == 0) {
        printf("the managed agent knows of no GPU%s%s\n", g->problem[0] ? ": " : "", g->problem);
        return;
    }
    printf("driver %s, CUDA up to %s; asked %.1f s ago%s\n", or_unknown(g->driver), or_unknown(g->cuda),
           (double)g->age_ms / 1e3, g->unchecked ? "; faults keep no jobs away (gpu_checks)" : "");
    if (g->problem[0])
        printf("%s\n", g->problem);
    if (g->unhealthy[0])
        printf("no new jobs: %s\n", g->unhealthy);
    printf("%5s  %-24s  %-40s  %-12s %4s %14s %5s %5s %5s %5s  %-11s  %-24s  %s\n", "INDEX", "NAME", "UUID",
           "BUS ID", "NUMA", "MEMORY", "TEMP", "UTIL", "ECC", "XIDS", "SLOWED BY", "JOB", "HEALTH");
    for (size_t i = 0; i < g->n_gpu; i++)
        show_gpu(i, g->gpu[i]);
}

/* ---- for programs -------------------------------------------------------------------------------------- */

static void put_gpu(struct json *j, size_t index, const Hvd__Gpu *g)
{
    json_object(j, NULL);
    json_unsigned(j, "index", index);
    json_filled_text(j, "name", g->name);
    json_filled_text(j, "uuid", g->uuid);
    json_filled_text(j, "bus_id", g->bus);
    json_bool(j, "mig_instance", g->instance);
    json_known_integer(j, "numa", g->numa >= 0, g->numa);
    json_unsigned(j, "memory_bytes", g->memory);
    json_unsigned(j, "memory_used_bytes", g->memory_used);
    json_known_integer(j, "temperature", g->temperature > 0, g->temperature);
    json_known_integer(j, "utilisation_percent", g->utilisation >= 0, g->utilisation);
    json_known_integer(j, "ecc_corrected", g->ecc_corrected >= 0, g->ecc_corrected);
    json_known_integer(j, "ecc_uncorrected", g->ecc_uncorrected >= 0, g->ecc_uncorrected);
    char slowed[GPU_SLOW_TEXT];
    json_filled_text(j, "slowed_by", gpu_slow_text(g->slowed < 0 ? 0 : (uint64_t)g->slowed, slowed));
    json_unsigned(j, "xids", g->xids);
    json_known_integer(j, "last_xid", g->xids > 0, g->last_xid);
    json_bool(j, "taken", g->taken);
    json_filled_text(j, "job", g->job);
    json_filled_text(j, "user", g->user);
    json_bool(j, "healthy", !g->unhealthy[0]);
    json_filled_text(j, "fault", g->unhealthy);
    json_end(j);
}

void show_gpus_json(const Hvd__Gpus *g)
{
    struct json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_filled_text(&j, "driver", g->driver);
    json_filled_text(&j, "cuda", g->cuda);
    json_filled_text(&j, "nvml", g->nvml);
    json_filled_text(&j, "problem", g->problem);
    json_filled_text(&j, "unhealthy", g->unhealthy);
    json_bool(&j, "checked", !g->unchecked);
    json_real(&j, "age_seconds", (double)g->age_ms / 1e3);
    json_array(&j, "gpus");
    for (size_t i = 0; i < g->n_gpu; i++)
        put_gpu(&j, i, g->gpu[i]);
    json_end(&j);
    json_end(&j);
}
