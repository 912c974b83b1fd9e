/* The library's table of calls to its host, and the calls that need no file of their own. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"

/* ---- abort --------------------------------------------------------------------------------------------- */

struct abort_call {
    struct upcall item;
    uint32_t rank;
    int status;
    pmix_op_cbfunc_t done;
    void *ctx;
    char text[256];
};

static void run_abort(struct upcall *item)
{
    struct abort_call *a = (struct abort_call *)item;
    struct rendezvous *r = pmix_server.r;
    r->events->abort(r->ctx, a->rank, (uint32_t)a->status, a->text, clock_now());
    a->done(PMIX_SUCCESS, a->ctx);
    free(a);
}

/* The job ends as a whole, whichever processes the call names. */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char msg[],
                              pmix_proc_t procs[], size_t count, pmix_op_cbfunc_t done, void *ctx)
{
    struct abort_call *a = calloc(1, sizeof *a);
    (void)object, (void)procs, (void)count;
    if (!a)
        return PMIX_ERR_NOMEM;
    *a = (struct abort_call){{NULL, run_abort}, proc->rank, status, done, ctx, ""};
    snprintf(a->text, sizeof a->text, "%s", msg ? msg : "");
    upcall_queue_post(&pmix_server.upcalls, &a->item);
    return PMIX_SUCCESS;
}

/* ---- clients ------------------------------------------------------------------------------------------- */

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t infos,
                                  pmix_op_cbfunc_t done, void *ctx)
{
    (void)proc, (void)object, (void)info, (void)infos, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *ctx)
{
    (void)proc, (void)object, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED;
}

pmix_server_module_t pmix_upcalls = {
    .client_connected2 = on_connected,
    .client_finalized = on_finalized,
    .abort = on_abort,
    .fence_nb = pmix_fence,
    .direct_modex = pmix_modex,
    .publish = pmix_publish,
    .lookup = pmix_lookup,
    .unpublish = pmix_unpublish,
    .spawn = pmix_spawn,
    .connect = pmix_connect,
    .disconnect = pmix_disconnect,
    .register_events = pmix_register_events,
    .deregister_events = pmix_deregister_events,
    .notify_event = pmix_notify,
    .query = pmix_query,
    .log = pmix_log,
    .job_control = pmix_job_control,
    .group = pmix_group,
};
