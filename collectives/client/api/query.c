#include "collectives/client/core.h"

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
        [-HVD_ERR_TIMEOUT] = "HVD_ERR_TIMEOUT",
        [-HVD_ERR_LEFT] = "HVD_ERR_LEFT",
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

static int read_number(const int *which)
{
    int status = client_check();
    return status ? status : *which;
}

int hvd_rank(void)
{
    return read_number(&client.rank);
}

int hvd_size(void)
{
    return read_number(&client.size);
}

int hvd_local_rank(void)
{
    return read_number(&client.local_rank);
}

int hvd_local_size(void)
{
    return read_number(&client.local_size);
}

int hvd_cross_rank(void)
{
    return read_number(&client.cross_rank);
}

int hvd_cross_size(void)
{
    return read_number(&client.cross_size);
}
