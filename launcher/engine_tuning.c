#include "launcher/engine_tuning.h"

#include <stdio.h>

#define WARNING_MS_DEFAULT 60000

/* Workers of Horovod read whole seconds. */
static int set_seconds(struct environment *env, const char *name, int64_t ms, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", ((long long)ms + 999) / 1000);
    return environment_set(env, name, text, e);
}

int engine_tuning_export(const struct config *config, struct environment *env, struct err *e)
{
    if (config->stall_check && environment_set(env, "HOROVOD_STALL_CHECK_DISABLE", "0", e) < 0)
        return -1;
    if (config->no_stall_check && environment_set(env, "HOROVOD_STALL_CHECK_DISABLE", "1", e) < 0)
        return -1;
    if (config->stall_warning_ms != WARNING_MS_DEFAULT &&
        set_seconds(env, "HOROVOD_STALL_CHECK_TIME_SECONDS", config->stall_warning_ms, e) < 0)
        return -1;
    if (config->stall_shutdown_ms &&
        set_seconds(env, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", config->stall_shutdown_ms, e) < 0)
        return -1;
    return 0;
}

void engine_tuning_fill(const struct config *config, const struct environment *env, Hvd__EngineTuning *t)
{
    hvd__engine_tuning__init(t);
    if (config->no_stall_check)
        return;
    t->stall_warning_ms = (uint64_t)config->stall_warning_ms;
    t->stall_shutdown_ms = (uint64_t)config->stall_shutdown_ms;
}
