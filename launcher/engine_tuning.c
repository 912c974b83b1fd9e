#include "launcher/engine_tuning.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define WARNING_MS_DEFAULT 60000

/* Workers of Horovod read whole seconds. */
static int set_seconds(struct environment *env, const char *name, int64_t ms, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", ((long long)ms + 999) / 1000);
    return environment_set(env, name, text, e);
}

/* Every host writes where hvdrun stands, wherever its workers do. */
static int export_timeline(const struct config *config, struct environment *env, struct err *e)
{
    char dir[PATH_MAX], path[2 * PATH_MAX];
    const char *file = config->timeline_filename;
    const char *marks = config->timeline_mark_cycles ? "1" : config->no_timeline_mark_cycles ? "0" : NULL;

    if (marks && environment_set(env, "HOROVOD_TIMELINE_MARK_CYCLES", marks, e) < 0)
        return -1;
    if (!file || strcmp(file, "DYNAMIC") == 0)
        return 0;
    if (*file != '/' && !getcwd(dir, sizeof dir))
        return err_sys(e, errno, "the directory of --timeline-filename %s", file);
    int n = snprintf(path, sizeof path, "%s%s%s", *file == '/' ? "" : dir, *file == '/' ? "" : "/", file);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ERR_USAGE, "--timeline-filename: the name is too long");
    return environment_set(env, "HOROVOD_TIMELINE", path, e);
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
    return export_timeline(config, env, e);
}

void engine_tuning_fill(const struct config *config, const struct environment *env, Hvd__EngineTuning *t)
{
    const char *timeline = environment_get(env, "HOROVOD_TIMELINE");

    hvd__engine_tuning__init(t);
    if (timeline && *timeline == '/') {
        t->timeline = (char *)timeline;
        t->timeline_mark_cycles = config->timeline_mark_cycles;
    }
    if (config->no_stall_check)
        return;
    t->stall_warning_ms = (uint64_t)config->stall_warning_ms;
    t->stall_shutdown_ms = (uint64_t)config->stall_shutdown_ms;
}
