#include "launcher/cli/engine_tuning.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Workers of Horovod read whole seconds. */
static int set_seconds(struct environment *env, const char *name, int64_t ms, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", ((long long)ms + 999) / 1000);
    return environment_set(env, name, text, e);
}

/* A relative name means a file in hvdrun's directory, also on other hosts: the variable gets the full
 * path. */
static int set_path(struct environment *env, const char *name, const char *option, const char *file,
                    struct err *e)
{
    char dir[PATH_MAX], path[2 * PATH_MAX];

    if (*file != '/' && !getcwd(dir, sizeof dir))
        return err_sys(e, errno, "the directory of %s %s", option, file);
    int n = snprintf(path, sizeof path, "%s%s%s", *file == '/' ? "" : dir, *file == '/' ? "" : "/", file);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ERR_USAGE, "%s: the name is too long", option);
    return environment_set(env, name, path, e);
}

int config_export_switch(const struct config *c, struct environment *env, const char *name, const bool *on,
                         const bool *off, struct err *e)
{
    bool yes = *on || (!*off && config_given(c, off));
    return *on || *off || config_given(c, on) || config_given(c, off)
               ? environment_set(env, name, yes ? "1" : "0", e)
               : 0;
}

int config_export_number(const struct config *c, struct environment *env, const char *name,
                         const int64_t *value, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)*value);
    return config_given(c, value) && *value >= 0 ? environment_set(env, name, text, e) : 0;
}

static int export_timeline(const struct config *c, struct environment *env, struct err *e)
{
    const char *file = c->timeline_filename;
    if (config_export_switch(c, env, "HOROVOD_TIMELINE_MARK_CYCLES", &c->timeline_mark_cycles,
                             &c->no_timeline_mark_cycles, e) < 0)
        return -1;
    if (!file || strcmp(file, "DYNAMIC") == 0)
        return 0;
    return set_path(env, "HOROVOD_TIMELINE", "--timeline-filename", file, e);
}

/* As in horovodrun, the other variables only stand beside the first. */
static int export_autotune(const struct config *c, struct environment *env, struct err *e)
{
    if (config_export_switch(c, env, "HOROVOD_AUTOTUNE", &c->autotune, &c->no_autotune, e) < 0)
        return -1;
    if (!c->autotune)
        return 0;
    if (c->autotune_log_file &&
        set_path(env, "HOROVOD_AUTOTUNE_LOG", "--autotune-log-file", c->autotune_log_file, e) < 0)
        return -1;
    if (c->autotune_noise &&
        environment_set(env, "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", c->autotune_noise, e) < 0)
        return -1;
    if (config_export_number(c, env, "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", &c->autotune_warmup_samples, e) < 0 ||
        config_export_number(c, env, "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", &c->autotune_steps_per_sample, e) <
            0)
        return -1;
    return config_export_number(c, env, "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", &c->autotune_samples, e);
}

/* The most bytes that the engine fuses; -1: the engine's own limit. */
static int64_t fusion_bytes(const struct config *c)
{
    return c->fusion_threshold_mb >= 0 ? c->fusion_threshold_mb * 1048576 : c->fusion_threshold;
}

static int export_fusion(const struct config *c, struct environment *env, struct err *e)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)fusion_bytes(c));
    if ((fusion_bytes(c) >= 0 && environment_set(env, "HOROVOD_FUSION_THRESHOLD", text, e) < 0) ||
        config_export_number(c, env, "HOROVOD_CACHE_CAPACITY", &c->cache_capacity, e) < 0)
        return -1;
    if (!config_given(c, &c->cycle_time_us))
        return 0;
    snprintf(text, sizeof text, "%lld.%03lld", (long long)c->cycle_time_us / 1000,
             (long long)c->cycle_time_us % 1000);
    return environment_set(env, "HOROVOD_CYCLE_TIME", text, e);
}

static int export_stall_check(const struct config *c, struct environment *env, struct err *e)
{
    if (config_export_switch(c, env, "HOROVOD_STALL_CHECK_DISABLE", &c->no_stall_check, &c->stall_check, e) <
        0)
        return -1;
    if (config_given(c, &c->stall_warning_ms) &&
        set_seconds(env, "HOROVOD_STALL_CHECK_TIME_SECONDS", c->stall_warning_ms, e) < 0)
        return -1;
    return config_given(c, &c->stall_shutdown_ms)
               ? set_seconds(env, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", c->stall_shutdown_ms, e)
               : 0;
}

int engine_tuning_export(const struct config *c, struct environment *env, struct err *e)
{
    if (export_stall_check(c, env, e) < 0 || export_fusion(c, env, e) < 0 ||
        config_export_switch(c, env, "HOROVOD_HIERARCHICAL_ALLREDUCE", &c->hierarchical_allreduce,
                             &c->no_hierarchical_allreduce, e) < 0 ||
        export_timeline(c, env, e) < 0)
        return -1;
    return export_autotune(c, env, e);
}

static void fill_autotune(const struct config *config, const struct environment *env, Hvd__EngineTuning *t)
{
    const char *log = environment_get(env, "HOROVOD_AUTOTUNE_LOG");

    t->autotune = config->autotune;
    if (log && *log == '/')
        t->autotune_log = (char *)log;
    t->autotune_warmup_samples = (uint32_t)config->autotune_warmup_samples;
    t->autotune_steps_per_sample = (uint32_t)config->autotune_steps_per_sample;
    t->autotune_samples = (uint32_t)config->autotune_samples;
}

void engine_tuning_fill(const struct config *config, const struct environment *env, Hvd__EngineTuning *t)
{
    const char *timeline = environment_get(env, "HOROVOD_TIMELINE");

    hvd__engine_tuning__init(t);
    if (timeline && *timeline == '/') {
        t->timeline = (char *)timeline;
        t->timeline_mark_cycles = config->timeline_mark_cycles;
    }
    fill_autotune(config, env, t);
    t->fusion_given = fusion_bytes(config) >= 0;
    if (t->fusion_given)
        t->fusion_bytes = (uint64_t)fusion_bytes(config);
    t->cache_given = config->cache_capacity >= 0;
    if (t->cache_given)
        t->cache_capacity = (uint32_t)config->cache_capacity;
    t->cycle_us = (uint32_t)config->cycle_time_us;
    t->flat_allreduce = config->no_hierarchical_allreduce;
    t->gpu_placement = config->gpu_placement == 1;
    t->gpu_connect_ms = (uint32_t)config->gpu_connect_timeout_ms;
    t->gpu_require_nccl = config->gpu_require_nccl;
    if (config->no_stall_check)
        return;
    t->stall_warning_ms = (uint64_t)config->stall_warning_ms;
    t->stall_shutdown_ms = (uint64_t)config->stall_shutdown_ms;
}
