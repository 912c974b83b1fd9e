#include "collectives/client/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The socket has a receive time-out of one slice. An engine that has not answered after ANSWER_SLICES counts
 * as stopped (slices, not a deadline: a job that was stopped and continued as a whole loses one); since its
 * answer could still come and be taken for another question's, the socket is not used again. */
#define ANSWER_SLICES 15
#define OPEN_SLICES   240 /* a driver that has to begin with all GPUs of a host takes seconds for each */

static int receive_answer(struct worker_reader *reader, uint32_t type, struct err *e)
{
    int rc = 0, slices = type == WORKER_DEVICE_OPEN ? OPEN_SLICES : ANSWER_SLICES;

    for (int i = 0; i < slices && rc == 0; i++) {
        if (i >= ANSWER_SLICES && region_poisoned(&client.region))
            break;
        rc = worker_receive(client.socket, reader, e);
    }
    return rc;
}

static int exchange(struct worker_message *m, int fd_in, int *fd_out, unsigned *fds_out)
{
    struct worker_reader reader = {.have = 0};
    struct err e = ERR_INIT;
    uint32_t type = m->type;
    int rc;

    m->tag = WORKER_MESSAGE_TAG;
    if (worker_send(client.socket, m, &fd_in, fd_in >= 0, &e) != 0)
        return fail(HVD_ERR_ENGINE, "this host's engine has gone: %s", e.text);
    rc = receive_answer(&reader, type, &e);
    if (rc != 1 || reader.message.type != type) {
        worker_reader_reset(&reader);
        return fail(HVD_ERR_ENGINE, "this host's engine %s",
                    rc < 0   ? "has gone"
                    : rc > 0 ? "answers another question"
                             : "does not answer");
    }
    *m = reader.message;
    unsigned wanted = fds_out ? *fds_out : 0;
    for (unsigned i = 0; i < reader.number_of_fds && i < wanted; i++) {
        fd_out[i] = reader.fds[i];
        reader.fds[i] = -1;
    }
    if (fds_out)
        *fds_out = reader.number_of_fds < wanted ? reader.number_of_fds : wanted;
    worker_reader_reset(&reader);
    return HVD_SUCCESS;
}

int rpc(struct worker_message *m, int fd_in, int *fd_out, unsigned *fds_out)
{
    int status;

    pthread_mutex_lock(&client.rpc_lock);
    if (client.rpc_broken)
        status = fail(HVD_ERR_ENGINE, "this host's engine has gone or does not answer");
    else if ((status = exchange(m, fd_in, fd_out, fds_out)) != HVD_SUCCESS)
        client.rpc_broken = true;
    pthread_mutex_unlock(&client.rpc_lock);
    if (status == HVD_ERR_ENGINE && client.region.header && region_poisoned(&client.region))
        return fail_poisoned();
    if (status == HVD_SUCCESS && m->status != HVD_SUCCESS)
        return fail(m->status < 0 ? m->status : HVD_ERR_ENGINE, "%s", m->text);
    return status;
}

void rpc_failed(const char *why)
{
    struct worker_message m = {.type = WORKER_FAILED};

    snprintf(m.text, sizeof m.text, "%.300s", why);
    rpc(&m, -1, NULL, NULL);
}

void rpc_note(const char *fmt, ...)
{
    struct worker_message m = {.type = WORKER_NOTE};
    va_list args;

    va_start(args, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, args);
    va_end(args);
    rpc(&m, -1, NULL, NULL);
}

int rpc_simple(uint32_t type)
{
    struct worker_message m = {.type = type};

    return rpc(&m, -1, NULL, NULL);
}
