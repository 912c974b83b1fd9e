/* The lifecycle of one communicator, as the table below.
 *
 * NCCL does what takes time in threads of its own, and ncclCommGetAsyncError tells how far they are; poll
 * asks it and posts what it hears. A group that run has given to NCCL is in its stream when NCCL says so, and
 * only then comes what follows it there (scaling, and taking apart, of results). The first error is kept,
 * moves the communicator to FAILED, and is told at each poll. From everywhere an abort leads out: it and the
 * freeing of a finished one are calls that may block, so threads make them (async_destroy.h). */
#include "collectives/gpu/communicator.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/gpu/async_destroy.h"
#include "collectives/gpu/fuse.h"
#include "collectives/gpu/operation.h"
#include "common/base/fsm.h"
#include "common/base/log.h"

#define EVENTS(X)                                                                                            \
    X(CONNECT, "connect")                                                                                    \
    X(UP, "up") X(LAUNCH, "launch") X(BREAK, "break") X(FINISH, "finish") X(ABORT, "abort") X(DONE, "done")
enum event { EVENTS(COMMUNICATOR_CONSTANT) };
#define NAME(constant, name) name,

struct registered {
    void *at;
    void *handle;
    bool known; /* else NCCL has refused */
    struct registered *next;
};

/* A result that is scaled once it is certain to be computed before. */
struct after {
    struct pack_piece piece;
    int dtype;
    double factor;
};

struct communicator {
    struct communicator_member who;
    char label[64];
    struct fsm fsm;
    nccl_comm comm;
    struct err why; /* it failed */
    struct ending *ending;
    struct scales scales;
    struct registered *registered;
    struct after *after; /* of the last run */
    size_t afters, after_capacity;
    struct fuse fuse;
    double fuse_after; /* the factor of the packed results of the last run */
    cu_stream stream;  /* of the last run */
};

/* ---- the table ---- */

static fsm_action make_buffer, finish_results, leave_others, begin_destroy, begin_abort;

#define S(name) COMMUNICATOR_##name
static const struct fsm_row rows[] = {
    {S(NONE), CONNECT, S(CONNECTING), NULL},
    {S(NONE), FINISH, S(FINISHED), NULL},
    {S(NONE), BREAK, S(FAILED), NULL},
    {S(NONE), ABORT, S(ABORTED), NULL},
    {S(CONNECTING), UP, S(READY), make_buffer},
    {S(CONNECTING), BREAK, S(FAILED), NULL},
    {S(CONNECTING), ABORT, S(ABORTING), begin_abort},
    {S(READY), LAUNCH, S(LAUNCHING), NULL},
    {S(READY), BREAK, S(FAILED), NULL},
    {S(READY), FINISH, S(FINISHING), leave_others},
    {S(READY), ABORT, S(ABORTING), begin_abort},
    {S(LAUNCHING), UP, S(READY), finish_results},
    {S(LAUNCHING), BREAK, S(FAILED), NULL},
    {S(LAUNCHING), ABORT, S(ABORTING), begin_abort},
    {S(FAILED), ABORT, S(ABORTING), begin_abort},
    {S(FINISHING), UP, S(DESTROYING), begin_destroy},
    {S(FINISHING), BREAK, S(FAILED), NULL},
    {S(FINISHING), ABORT, S(ABORTING), begin_abort},
    {S(DESTROYING), DONE, S(FINISHED), NULL},
    {S(ABORTING), DONE, S(ABORTED), NULL},
};
#undef S

static const struct fsm_table table = {
    .name = "communicator",
    .states = (const char *const[]){COMMUNICATOR_STATES(NAME)},
    .events = (const char *const[]){EVENTS(NAME)},
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
};

/* ---- small things ---- */

static void enter_context(struct communicator *c)
{
    c->who.d->cuCtxPushCurrent(c->who.context);
}

static void leave_context(struct communicator *c)
{
    cu_context mine;
    c->who.d->cuCtxPopCurrent(&mine);
}

/* It has failed; `why` is in c->why. */
static int report_broken(struct communicator *c, struct err *e)
{
    err_wrap(&c->why, "%s: rank %d of %d on GPU %d", c->label, c->who.rank, c->who.size, c->who.ordinal);
    fsm_post(&c->fsm, BREAK);
    return err_set(e, c->why.code, "%s", c->why.text);
}

static int check_result(struct communicator *c, nccl_result result, const char *what, struct err *e)
{
    nccl_check(c->who.n, result, c->comm, &c->why, "%s", what);
    return report_broken(c, e);
}

enum communicator_state communicator_state(const struct communicator *c)
{
    return (enum communicator_state)c->fsm.state;
}

static int require_state(const struct communicator *c, enum communicator_state state, const char *what,
                         struct err *e)
{
    if (communicator_state(c) == state)
        return 0;
    if (c->why.code)
        return err_set(e, c->why.code, "%s", c->why.text);
    return err_set(e, ERR_USAGE, "%s: %s in a communicator that is %s", c->label, what,
                   fsm_state_name(&c->fsm));
}

/* ---- connecting ---- */

struct communicator *communicator_new(const struct communicator_member *who, const char *label, struct err *e)
{
    struct communicator *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_MEMORY, "no memory for a communicator");
        return NULL;
    }
    c->who = *who;
    c->fuse.pack = who->pack;
    snprintf(c->label, sizeof c->label, "%s", label);
    fsm_init(&c->fsm, &table, c, c->label, COMMUNICATOR_NONE);
    return c;
}

int communicator_id(const struct nccl *n, struct nccl_id *id, struct err *e)
{
    return nccl_check(n, n->ncclGetUniqueId(id), NULL, e, "making an id for a communicator");
}

int communicator_connect(struct communicator *c, const struct nccl_id *id, struct err *e)
{
    struct nccl_config config = NCCL_CONFIG_INIT;
    config.blocking = 0;
    if (require_state(c, COMMUNICATOR_NONE, "connecting", e) < 0)
        return -1;
    enter_context(c);
    nccl_result result = c->who.n->ncclCommInitRankConfig(&c->comm, c->who.size, *id, c->who.rank, &config);
    leave_context(c);
    if (result != NCCL_OK && result != NCCL_IN_PROGRESS)
        return check_result(c, result, "connecting", e);
    fsm_post(&c->fsm, CONNECT);
    return 0;
}

/* Before any operation: it may hold up what runs on the GPU. */
static void make_buffer(void *owner)
{
    struct communicator *c = owner;
    const struct driver *d = c->who.d;
    if (c->who.fuse == 0)
        return;
    enter_context(c);
    if (driver_check(d, d->cuMemAlloc(&c->fuse.buffer, c->who.fuse), &c->why, "allocating %zu bytes",
                     c->who.fuse) < 0)
        report_broken(c, NULL);
    else
        c->fuse.capacity = c->who.fuse;
    leave_context(c);
}

/* ---- how far it is ---- */

static nccl_result ask_nccl(struct communicator *c)
{
    nccl_result now = NCCL_IN_PROGRESS;
    enter_context(c);
    nccl_result result = c->who.n->ncclCommGetAsyncError(c->comm, &now);
    leave_context(c);
    return result == NCCL_OK ? now : result;
}

static void update_state(struct communicator *c, const char *what)
{
    nccl_result now = ask_nccl(c);
    if (now == NCCL_OK)
        fsm_post(&c->fsm, UP);
    else if (now != NCCL_IN_PROGRESS)
        check_result(c, now, what, NULL);
}

enum communicator_state communicator_poll(struct communicator *c, struct err *e)
{
    switch (communicator_state(c)) {
    case COMMUNICATOR_CONNECTING:
        update_state(c, "connecting");
        break;
    case COMMUNICATOR_LAUNCHING:
        update_state(c, "starting operations");
        break;
    case COMMUNICATOR_FINISHING:
        update_state(c, "leaving the other ranks");
        break;
    case COMMUNICATOR_READY: {
        nccl_result now = ask_nccl(c);
        if (now != NCCL_OK && now != NCCL_IN_PROGRESS)
            check_result(c, now, "an operation that was started", NULL);
        break;
    }
    case COMMUNICATOR_DESTROYING:
    case COMMUNICATOR_ABORTING:
        if (ending_wait(c->ending, 0))
            fsm_post(&c->fsm, DONE);
        break;
    default:
        break;
    }
    if (communicator_state(c) == COMMUNICATOR_FAILED)
        err_set(e, c->why.code, "%s", c->why.text);
    return communicator_state(c);
}

/* ---- operations ---- */

static int find_scale(struct communicator *c, const struct reduction *r, nccl_op *op, struct err *e)
{
    nccl_result result = scales_find(&c->scales, c->who.n, c->comm, r, op);
    return result == NCCL_OK ? 0 : check_result(c, result, "making a scaled sum", e);
}

static int remember_after(struct communicator *c, const struct gpu_operation *o, double factor, struct err *e)
{
    if (c->afters == c->after_capacity) {
        size_t capacity = c->after_capacity ? 2 * c->after_capacity : 16;
        struct after *more = realloc(c->after, capacity * sizeof *more);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory for scaling");
        c->after = more;
        c->after_capacity = capacity;
    }
    cu_pointer out = (cu_pointer)(uintptr_t)o->out;
    size_t count = o->kind == GPU_REDUCESCATTER ? operation_part(o, c->who.size, c->who.rank) : o->count;
    c->after[c->afters++] = (struct after){{out, out, count}, o->dtype, factor};
    return 0;
}

/* The steps before the group: NCCL's scaling operations, and libhvd's kernels on inputs. */
static int prepare_scaling(struct communicator *c, const struct gpu_operation *o, struct err *e)
{
    if (!operation_reduces(o))
        return 0;
    struct reduction r;
    struct gpu_why why;
    if (reduction_plan(o, c->who.size, &r, &why) < 0)
        return err_set(e, ERR_UNSUPPORTED, "%s: %s", c->label, why.text);
    if ((r.before != 1 || r.after != 1) && !(c->who.pack && pack_has_kernels(c->who.pack)))
        return err_set(e, ERR_UNSUPPORTED, "%s: there are no kernels for scaling", c->label);
    nccl_op op;
    if (r.factor != 1 && find_scale(c, &r, &op, e) < 0)
        return -1;
    if (fuse_is_whole(&c->fuse, o)) {
        c->fuse_after = r.after;
        return fuse_in(&c->fuse, r.before, c->stream, e);
    }
    if (r.after != 1 && remember_after(c, o, r.after, e) < 0)
        return -1;
    struct pack_piece piece = {(cu_pointer)(uintptr_t)o->out, (cu_pointer)(uintptr_t)o->in, o->count};
    return r.before == 1 ? 0 : pack_scale(c->who.pack, &piece, 1, o->dtype, r.before, c->stream, e);
}

static nccl_result call_nccl(struct communicator *c, const struct gpu_operation *o, struct err *e)
{
    struct operation_target target = {c->who.n, c->comm, c->stream, c->who.rank, c->who.size};
    struct reduction r = {.op = NCCL_SUM, .factor = 1, .before = 1, .after = 1};
    if (operation_reduces(o))
        reduction_plan(o, c->who.size, &r, NULL);
    nccl_op op = r.op;
    if (r.factor != 1 && find_scale(c, &r, &op, e) < 0)
        return NCCL_INTERNAL_ERROR;
    return operation_call(&target, o, &r, op);
}

static int launch_group(struct communicator *c, const struct gpu_operation *o, size_t n, struct err *e)
{
    nccl_result first = c->who.n->ncclGroupStart();
    if (first != NCCL_OK)
        return check_result(c, first, "starting operations", e);
    for (size_t i = 0; i < n && first == NCCL_OK; i++)
        nccl_take(&first, call_nccl(c, &o[i], e));
    nccl_result end = c->who.n->ncclGroupEnd(); /* also after an error: it ends the group */
    if (first == NCCL_OK)
        first = end;
    if (first != NCCL_OK && first != NCCL_IN_PROGRESS)
        return check_result(c, first, "starting operations", e);
    fsm_post(&c->fsm, LAUNCH);
    if (first == NCCL_OK)
        fsm_post(&c->fsm, UP);
    return 0;
}

int communicator_run(struct communicator *c, const struct gpu_operation *o, size_t n, cu_stream stream,
                     struct err *e)
{
    const struct fuse *f = &c->fuse;
    if (require_state(c, COMMUNICATOR_READY, "an operation", e) < 0)
        return -1;
    c->stream = stream;
    c->afters = 0;
    enter_context(c);
    int status = fuse_plan(&c->fuse, o, n, e);
    for (size_t i = 0; i < f->operations && status == 0; i++)
        status = prepare_scaling(c, &f->operation[i], e);
    if (status == 0)
        status = launch_group(c, f->operation, f->operations, e);
    leave_context(c);
    return status;
}

/* The group is in its stream: now what is to be done to its results, those that were packed last. */
static void finish_results(void *owner)
{
    struct communicator *c = owner;
    enter_context(c);
    for (size_t i = 0; i < c->afters && !c->why.code; i++) {
        const struct after *a = &c->after[i];
        if (pack_scale(c->who.pack, &a->piece, 1, a->dtype, a->factor, c->stream, &c->why) < 0)
            report_broken(c, NULL);
    }
    if (c->fuse.packed > 0 && !c->why.code && fuse_out(&c->fuse, c->fuse_after, c->stream, &c->why) < 0)
        report_broken(c, NULL);
    leave_context(c);
}

/* ---- memory ---- */

bool communicator_register(struct communicator *c, void *at, size_t bytes)
{
    struct err e = ERR_INIT;
    struct registered *r = c->registered;
    while (r && r->at != at)
        r = r->next;
    if (r)
        return r->known;
    if (!c->who.n->ncclCommRegister || !c->who.n->ncclCommDeregister ||
        communicator_state(c) != COMMUNICATOR_READY)
        return false;
    r = calloc(1, sizeof *r);
    if (!r)
        return false;
    *r = (struct registered){.at = at, .next = c->registered};
    c->registered = r;
    enter_context(c);
    nccl_result result = c->who.n->ncclCommRegister(c->comm, at, bytes, &r->handle);
    leave_context(c);
    r->known = result == NCCL_OK;
    if (nccl_check(c->who.n, result, c->comm, &e, "%s: registering %zu bytes of GPU %d", c->label, bytes,
                   c->who.ordinal) != 0)
        log_info("%s", e.text);
    return r->known;
}

/* `with_nccl`: it is alive, and told. */
static void forget_buffers(struct communicator *c, struct registered **place, bool with_nccl)
{
    struct registered *r = *place;
    *place = r->next;
    if (with_nccl && r->known) {
        enter_context(c);
        c->who.n->ncclCommDeregister(c->comm, r->handle);
        leave_context(c);
    }
    free(r);
}

void communicator_deregister(struct communicator *c, void *at)
{
    struct registered **place = &c->registered;
    while (*place && (*place)->at != at)
        place = &(*place)->next;
    if (*place)
        forget_buffers(c, place, communicator_state(c) == COMMUNICATOR_READY);
}

/* ---- the end ---- */

static void leave_others(void *owner)
{
    struct communicator *c = owner;
    while (c->registered)
        forget_buffers(c, &c->registered, true);
    enter_context(c);
    scales_forget(&c->scales, c->who.n, c->comm);
    nccl_result result = c->who.n->ncclCommFinalize(c->comm);
    leave_context(c);
    if (result != NCCL_OK && result != NCCL_IN_PROGRESS)
        check_result(c, result, "leaving the other ranks", NULL);
}

static void end_with(struct communicator *c, nccl_result (*last)(nccl_comm))
{
    if (c->comm)
        c->ending = ending_begin(c->who.d, c->who.context, last, c->comm, c->fuse.buffer);
}

static void begin_destroy(void *owner)
{
    struct communicator *c = owner;
    end_with(c, c->who.n->ncclCommDestroy);
}

static void begin_abort(void *owner)
{
    struct communicator *c = owner;
    end_with(c, c->who.n->ncclCommAbort);
}

int communicator_finish(struct communicator *c, struct err *e)
{
    if (communicator_state(c) != COMMUNICATOR_NONE && require_state(c, COMMUNICATOR_READY, "leaving", e) < 0)
        return -1;
    fsm_post(&c->fsm, FINISH);
    return communicator_poll(c, e) == COMMUNICATOR_FAILED ? -1 : 0;
}

bool communicator_abort(struct communicator *c, int patience_ms)
{
    fsm_post(&c->fsm, ABORT);
    enum communicator_state now = communicator_state(c);
    if ((now == COMMUNICATOR_ABORTING || now == COMMUNICATOR_DESTROYING) &&
        ending_wait(c->ending, patience_ms))
        fsm_post(&c->fsm, DONE);
    now = communicator_state(c);
    return now == COMMUNICATOR_ABORTED || now == COMMUNICATOR_FINISHED;
}

void communicator_free(struct communicator *c)
{
    if (!c)
        return;
    communicator_abort(c, 0);
    ending_leave(c->ending);
    while (c->registered)
        forget_buffers(c, &c->registered, false);
    fuse_free(&c->fuse);
    free(c->after);
    free(c);
}
