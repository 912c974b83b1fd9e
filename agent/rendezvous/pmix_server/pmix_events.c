/* Events: what a rank notifies goes to the ranks of all hosts, and so does the death of a rank, of which each
 * host hears by itself. The library delivers to whoever has registered a handler; between hosts an event is
 * one broadcast: code, range, source, information. */
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/log.h"

struct notice {
    struct upcall item;
    pmix_byte_object_t bytes;
};

struct told { /* memory that the library uses while it delivers an event */
    pmix_info_t *info;
    size_t infos;
};

pmix_status_t pmix_register_events(pmix_status_t *codes, size_t count, const pmix_info_t info[], size_t infos,
                                   pmix_op_cbfunc_t done, void *ctx)
{
    (void)codes, (void)count, (void)info, (void)infos, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED; /* every host hears of every event */
}

pmix_status_t pmix_deregister_events(pmix_status_t *codes, size_t count, pmix_op_cbfunc_t done, void *ctx)
{
    (void)codes, (void)count, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED;
}

/* ---- delivering ---------------------------------------------------------------------------------------- */

/* On the library's thread. */
static void on_delivered(pmix_status_t status, void *ctx)
{
    struct told *t = ctx;
    (void)status;
    if (t->info)
        PMIX_INFO_FREE(t->info, t->infos);
    free(t);
}

static void deliver_event(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range,
                          struct told *t)
{
    pmix_status_t rc = PMIx_Notify_event(code, source, range, t->info, t->infos, on_delivered, t);
    if (rc != PMIX_SUCCESS)
        on_delivered(rc, t);
}

void pmix_event_told(const uint8_t *data, size_t len)
{
    pmix_byte_object_t bytes = {(char *)(uintptr_t)data, len};
    pmix_data_buffer_t buffer;
    pmix_status_t code;
    pmix_data_range_t range;
    pmix_proc_t source;
    int32_t one = 1, infos = 0;
    struct told *t = calloc(1, sizeof *t);
    if (!t)
        return;
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    bool good = PMIx_Data_embed(&buffer, &bytes) == PMIX_SUCCESS &&
                PMIx_Data_unpack(NULL, &buffer, &code, &one, PMIX_STATUS) == PMIX_SUCCESS &&
                PMIx_Data_unpack(NULL, &buffer, &range, &one, PMIX_DATA_RANGE) == PMIX_SUCCESS &&
                PMIx_Data_unpack(NULL, &buffer, &source, &one, PMIX_PROC) == PMIX_SUCCESS &&
                PMIx_Data_unpack(NULL, &buffer, &infos, &one, PMIX_INT32) == PMIX_SUCCESS && infos >= 0 &&
                (size_t)infos <= len;
    if (good && infos > 0) {
        PMIX_INFO_CREATE(t->info, (size_t)infos);
        t->infos = t->info ? (size_t)infos : 0;
        good = t->info && PMIx_Data_unpack(NULL, &buffer, t->info, &infos, PMIX_INFO) == PMIX_SUCCESS;
    }
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    if (good)
        deliver_event(code, &source, range, t);
    else
        on_delivered(PMIX_ERROR, t);
}

/* Only for handlers that are registered for it: a library's default handler ends its process, which is
 * --on-failure's to decide. */
void pmix_events_rank_ended(uint32_t rank)
{
    struct told *t = calloc(1, sizeof *t);
    pmix_proc_t proc;
    bool yes = true;
    if (!t || strcmp(pmix_server.r->end[rank], "exit status 0") == 0) {
        free(t);
        return;
    }
    PMIX_LOAD_PROCID(&proc, pmix_server.space, rank);
    PMIX_INFO_CREATE(t->info, 2);
    if (t->info) {
        t->infos = 2;
        PMIX_INFO_LOAD(&t->info[0], PMIX_EVENT_AFFECTED_PROC, &proc, PMIX_PROC);
        PMIX_INFO_LOAD(&t->info[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    }
    deliver_event(PMIX_ERR_PROC_ABORTED, &proc, PMIX_RANGE_NAMESPACE, t);
}

/* ---- telling ------------------------------------------------------------------------------------------- */

static void tell_hosts(struct upcall *item)
{
    struct notice *n = (struct notice *)item;
    uint8_t *m = malloc(1 + n->bytes.size);
    if (m) {
        m[0] = PMIX_MESSAGE_EVENT;
        memcpy(m + 1, n->bytes.bytes, n->bytes.size);
        pmix_tree_broadcast(m, 1 + n->bytes.size);
    }
    free(m);
    free(n->bytes.bytes);
    free(n);
}

static bool pack_event(pmix_data_buffer_t *b, void *what, int32_t count, pmix_data_type_t type)
{
    return PMIx_Data_pack(NULL, b, what, count, type) == PMIX_SUCCESS;
}

/* This host's ranks have it from the library already. */
pmix_status_t pmix_notify(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range,
                          pmix_info_t info[], size_t infos, pmix_op_cbfunc_t done, void *ctx)
{
    pmix_data_buffer_t buffer;
    int32_t count = (int32_t)infos;
    (void)done, (void)ctx;
    if (range == PMIX_RANGE_LOCAL || range == PMIX_RANGE_PROC_LOCAL || range == PMIX_RANGE_RM ||
        pmix_server.r->spawn->n_host == 1)
        return PMIX_OPERATION_SUCCEEDED;
    struct notice *n = infos < INT32_MAX ? calloc(1, sizeof *n) : NULL;
    if (!n)
        return PMIX_ERR_NOMEM;
    n->item.run = tell_hosts;
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    bool good = pack_event(&buffer, &code, 1, PMIX_STATUS) &&
                pack_event(&buffer, &range, 1, PMIX_DATA_RANGE) &&
                pack_event(&buffer, (void *)(uintptr_t)source, 1, PMIX_PROC) &&
                pack_event(&buffer, &count, 1, PMIX_INT32) &&
                (infos == 0 || pack_event(&buffer, info, count, PMIX_INFO)) &&
                PMIx_Data_unload(&buffer, &n->bytes) == PMIX_SUCCESS;
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    if (!good) {
        free(n);
        return PMIX_ERR_PACK_FAILURE;
    }
    upcall_queue_post(&pmix_server.upcalls, &n->item);
    return PMIX_OPERATION_SUCCEEDED;
}
