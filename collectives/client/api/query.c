#include "collectives/client/internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[SHM_TEXT_MAX];
static _Thread_local int last_status;

int fail(int status, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(last_error, sizeof last_error, fmt, args);
    va_end(args);
    return last_status = status;
}

int last_failure(void)
{
    return last_status;
}

int client_check(void)
{
    switch (atomic_load_explicit(&client.state, memory_order_acquire)) {
    case CLIENT_READY:
    case CLIENT_JOINING:
    case CLIENT_STRANDED:
        return HVD_SUCCESS;
    case CLIENT_FORKED:
        return fail(HVD_ERR_FORKED,
                    "this process was made by fork() after hvd_init: call hvd in the parent, or exec a "
                    "program of its own");
    default:
        return fail(HVD_ERR_NOT_INITIALIZED, "hvd_init was not called, or hvd_shutdown was");
    }
}

int client_may_begin(void)
{
    int state = atomic_load_explicit(&client.state, memory_order_acquire);

    if (state == CLIENT_READY)
        return HVD_SUCCESS;
    if (state == CLIENT_STRANDED)
        return fail(HVD_ERR_ENGINE, "this host's engine has gone or does not move: nothing can begin");
    return state == CLIENT_JOINING
               ? fail(HVD_ERR_IN_PROGRESS, "this rank is in hvd_join, which has not ended: nothing can begin")
               : client_check();
}

int fail_poisoned(void)
{
    char text[SHM_TEXT_MAX];
    int status = region_poison_read(&client.region, text, sizeof text);

    return fail(status, "%s", text);
}

const char *hvd_last_error(void)
{
    return last_error;
}

const char *hvd_status_name(int status)
{
    static const char *const names[] = {
        [0] = "HVD_SUCCESS",
        [-HVD_ERR_NOT_INITIALIZED] = "HVD_ERR_NOT_INITIALIZED",
        [-HVD_ERR_INVALID] = "HVD_ERR_INVALID",
        [-HVD_ERR_MISMATCH] = "HVD_ERR_MISMATCH",
        [-HVD_ERR_PEER] = "HVD_ERR_PEER",
        [-HVD_ERR_ENGINE] = "HVD_ERR_ENGINE",
        [-HVD_ERR_MEMORY] = "HVD_ERR_MEMORY",
        [-HVD_ERR_FORKED] = "HVD_ERR_FORKED",
        [-HVD_ERR_SYSTEM] = "HVD_ERR_SYSTEM",
        [-HVD_ERR_IN_PROGRESS] = "HVD_ERR_IN_PROGRESS",
        [-HVD_ERR_SET_UNKNOWN] = "HVD_ERR_SET_UNKNOWN",
        [-HVD_ERR_SET_FOREIGN] = "HVD_ERR_SET_FOREIGN",
        [-HVD_ERR_SET_EXISTS] = "HVD_ERR_SET_EXISTS",
    };
    int known = (int)(sizeof names / sizeof names[0]);

    return status <= 0 && status > -known ? names[-status] : "unknown status";
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}

int hvd_is_initialized(void)
{
    int state = atomic_load_explicit(&client.state, memory_order_acquire);

    return state == CLIENT_FORKED ? client_check() : state != CLIENT_NONE;
}

static int number(const int *which)
{
    int status = client_check();

    return status ? status : *which;
}

int hvd_rank(void)
{
    return number(&client.rank);
}

int hvd_size(void)
{
    return number(&client.size);
}

int hvd_local_rank(void)
{
    return number(&client.local_rank);
}

int hvd_local_size(void)
{
    return number(&client.local_size);
}

int hvd_cross_rank(void)
{
    return number(&client.cross_rank);
}

int hvd_cross_size(void)
{
    return number(&client.cross_size);
}
