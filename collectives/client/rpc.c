#include "collectives/client/rpc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/core.h"
#include "collectives/client/overdue.h"

static uint32_t beat_seen(void)
{
    return client.region.header ? atomic_load(&client.region.header->beat) : 0;
}

/* The socket has a receive time-out of one slice. When the answer is given up (overdue.h) it could still come
 * and be taken for another question's, so the socket is not used again. */
static int receive_answer(struct worker_reader *reader, uint32_t type, struct err *e)
{
    struct overdue o = {.beat = beat_seen()};
    bool blind = type == WORKER_HELLO || type == WORKER_DEVICE_OPEN;
    bool endless =
        type == WORKER_HELLO && client.worker >= 0; /* hvdrun ends a membership that does not come */
    int rc;
    while ((rc = worker_receive(client.socket, reader, e)) == 0)
        if (!endless &&
            overdue_after(&o, beat_seen(), blind, client.region.header && region_poisoned(&client.region)))
            break;
    return rc;
}

static int ask_engine(struct worker_message *m, int fd_in, int *fds_out, unsigned *number)
{
    struct worker_reader reader = {.have = 0};
    struct err e = ERR_INIT;
    uint32_t type = m->type;
    m->tag = WORKER_MESSAGE_TAG;
    if (worker_send(client.socket, m, &fd_in, fd_in >= 0, &e) != 0)
        return fail(HVD_ERR_ENGINE, "this host's engine has gone: %s", e.text);
    int rc = receive_answer(&reader, type, &e);
    if (rc != 1 || reader.message.type != type) {
        worker_reader_reset(&reader);
        return fail(HVD_ERR_ENGINE, "this host's engine %s",
                    rc < 0   ? "has gone"
                    : rc > 0 ? "answers another question"
                             : "does not answer");
    }
    *m = reader.message;
    unsigned wanted = number ? *number : 0;
    for (unsigned i = 0; i < reader.number_of_fds && i < wanted; i++) {
        fds_out[i] = reader.fds[i];
        reader.fds[i] = -1;
    }
    if (number)
        *number = reader.number_of_fds < wanted ? reader.number_of_fds : wanted;
    worker_reader_reset(&reader);
    return HVD_SUCCESS;
}

int rpc(struct worker_message *m, int fd_in, int *fds_out, unsigned *number)
{
    pthread_mutex_lock(&client.rpc_lock);
    int status = client.rpc_broken ? fail(HVD_ERR_ENGINE, "this host's engine has gone or does not answer")
                                   : ask_engine(m, fd_in, fds_out, number);
    if (status != HVD_SUCCESS)
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

void rpc_note(enum log_level level, const char *fmt, ...)
{
    struct worker_message m = {.type = WORKER_NOTE, .id = level};
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
