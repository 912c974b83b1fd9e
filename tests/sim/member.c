/* The program of a rank: hvd_init, rounds of operations, hvd_shutdown. In a round the rank starts operations
 * in an order of its own, and waits for them in another. It goes on after errors, as a careless program
 * would. */
#include "tests/sim/member.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* One operation of one rank. */
struct call {
    hvd_handle handle;
    void *in, *out;
    bool in_arena, out_arena;
    const void *shared;
    size_t *rows_of;
    bool started, ended;
    bool will_wait;
};

#define POLLS 40

struct rank_report member_report[SIM_MEMBERS];
const struct plan *member_plan;
static struct library library[SIM_MEMBERS];
static uint64_t right[PLAN_ROUNDS][PLAN_TENSORS]; /* the common result that was found right in this run */
static struct {
    void *memory[4 * PLAN_ROUNDS * PLAN_TENSORS];
    size_t number;
} held[SIM_MEMBERS];

/* ---- the libraries ------------------------------------------------------------------------------------- */

static int open_library(struct library *l)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", l->file);
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
#define FIND(name) l->name = (__typeof__(l->name))dlsym(l->handle, #name);
    MEMBER_CALLS(FIND)
    return 0;
}

int member_open_libraries(const char *path)
{
    int from = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;

    if (from < 0 || fstat(from, &st) != 0) {
        fprintf(stderr, "no library at %s\n", path);
        return -1;
    }
    for (int i = 0; i < SIM_MEMBERS; i++) {
        off_t at = 0;
        library[i].file = memfd_create("libhvd", MFD_CLOEXEC);
        while (at < st.st_size) {
            char block[65536];
            ssize_t n = pread(from, block, sizeof block, at);
            if (n <= 0 || write(library[i].file, block, (size_t)n) != n)
                return -1;
            at += n;
        }
        if (open_library(&library[i]) != 0)
            return -1;
    }
    close(from);
    return 0;
}

void member_reset(void)
{
    memset(right, 0, sizeof right);
    for (uint32_t i = 0; i < SIM_MEMBERS; i++) {
        dlclose(library[i].handle); /* a process of its own: libhvd counts the epochs of the job it is in */
        if (open_library(&library[i]) != 0)
            abort();
        while (held[i].number > 0)
            free(held[i].memory[--held[i].number]);
        struct rank_report *r = &member_report[i];
        memset(r, 0, sizeof *r);
        r->init.status = r->end.status = MEMBER_NOT_RUN;
        for (int k = 0; k < PLAN_ROUNDS; k++) {
            r->barrier[k].status = r->join[k].status = MEMBER_NOT_RUN;
            for (int t = 0; t < PLAN_TENSORS; t++)
                r->op[k][t].status = MEMBER_NOT_RUN;
        }
    }
}

void member_close_libraries(void)
{
    for (int i = 0; i < SIM_MEMBERS; i++) {
        dlclose(library[i].handle);
        close(library[i].file);
    }
}

/* ---- one operation ------------------------------------------------------------------------------------- */

struct library *member_library(void)
{
    return &library[sim_current->index];
}

#define mine member_library

static void note(struct outcome *o, int status)
{
    o->status = status;
    if (status != HVD_SUCCESS)
        snprintf(o->text, sizeof o->text, "%s", mine()->hvd_last_error());
}

/* Memory of the rank: in the arena or not, as chance wills, and never aligned for certain. Elements that go
 * piece by piece are not in the arena. */
static void *memory(size_t bytes, const struct call *c, bool *arena)
{
    void *got = NULL;

    *arena = chance_one_in(&sim_timing, c->will_wait ? 8 : 2);
    if (*arena)
        got = mine()->hvd_alloc(bytes);
    if (got)
        return got;
    *arena = false;
    got = calloc(1, bytes + 1);
    if (!got)
        abort();
    held[sim_current->index].memory[held[sim_current->index].number++] = got;
    return got;
}

/* The operation that this rank asks for: the planned one. The odd rank asks for another size. */
static struct plan_op said(const struct plan_op *op)
{
    struct plan_op mine_only = *op;

    if (op->odd == sim_current->index) {
        mine_only.row += op->kind >= PLAN_ALLGATHER;
        mine_only.rows += op->kind < PLAN_ALLGATHER;
    }
    return mine_only;
}

static int start(const char *name, const struct plan_op *op, struct call *c)
{
    struct library *l = mine();
    uint32_t rank = sim_current->index, size = member_plan->size;
    hvd_options options = {.prescale = op->prescale,
                           .postscale = op->postscale,
                           .compression = op->compression,
                           .will_wait = c->will_wait};
    const hvd_options plain = {.will_wait = c->will_wait};
    size_t rows = plan_rows_in(member_plan, op, rank), out = plan_rows_out(member_plan, op, rank);
    size_t element = plan_dtype_size(op->dtype), count[PLAN_PIECES], split[SIM_MEMBERS];
    const void *in[PLAN_PIECES];
    void *outs[PLAN_PIECES];
    size_t at = 0;

    plan_pieces(op, count);
    for (int i = 0; i < PLAN_PIECES; at += count[i++] * element) {
        in[i] = (char *)c->in + at;
        outs[i] = (char *)c->out + at;
    }
    for (uint32_t to = 0; to < size; to++)
        split[to] = plan_split(op, rank, to);
    switch (op->kind) {
    case PLAN_ALLREDUCE:
        return l->hvd_allreduce_async(name, c->in, c->out, op->rows, op->dtype, op->op, &options, &c->handle);
    case PLAN_PERSISTENT: {
        int status =
            l->hvd_allreduce_init(name, c->in, c->out, op->rows, op->dtype, op->op, &options, &c->handle);
        if (status != HVD_SUCCESS || (status = l->hvd_start(c->handle)) == HVD_SUCCESS)
            return status;
        l->hvd_handle_free(c->handle);
        return status;
    }
    case PLAN_GROUP:
        return l->hvd_grouped_allreduce_async(name, PLAN_PIECES, in, outs, count, op->dtype, op->op, &options,
                                              &c->handle);
    case PLAN_SHARED:
        return l->hvd_allreduce_shared_async(name, c->in, op->rows, op->dtype, op->op, &options, &c->shared,
                                             &c->handle);
    case PLAN_BROADCAST:
        return l->hvd_broadcast_async(name, c->out, op->rows, op->dtype, (int)op->root, &plain, &c->handle);
    case PLAN_ALLGATHER:
        return l->hvd_allgather_async(name, c->in, rows, op->row, op->dtype, c->out, out, c->rows_of, &plain,
                                      &c->handle);
    case PLAN_ALLTOALL:
        return l->hvd_alltoall_async(name, c->in, rows, split, op->row, op->dtype, c->out, out, c->rows_of,
                                     &plain, &c->handle);
    default:
        return l->hvd_reducescatter_async(name, c->in, op->rows, op->row, op->dtype, op->op, c->out, NULL,
                                          &c->handle);
    }
}

static void begin(uint32_t round, uint32_t t, struct call *c)
{
    struct plan_op op = said(&member_plan->op[round][t]);
    uint32_t rank = sim_current->index;
    size_t element = plan_dtype_size(op.dtype);
    size_t in = plan_rows_in(member_plan, &op, rank) * op.row;
    size_t out = (plan_rows_out(member_plan, &op, rank) + 1) * op.row;
    char name[40];

    /* In half of the plans a name is used again by each round, for another kind perhaps. In half of the plans
     * each round has names of its own, but for shared results, which keep their names. */
    uint64_t seed = member_plan->op[0][0].seed;
    snprintf(name, sizeof name, "tensor.%u.%d.%u", t, seed & 1 ? (int)op.kind : 0,
             seed & 2 && op.kind != PLAN_SHARED ? round : 0);
    *c = (struct call){.will_wait = op.blocks && !chance_one_in(&sim_timing, 4)};
    c->in = memory((in + 1) * element, c, &c->in_arena);
    c->rows_of = calloc(member_plan->size, sizeof *c->rows_of);
    held[rank].memory[held[rank].number++] = c->rows_of;
    c->out = op.in_place && op.kind != PLAN_BROADCAST ? c->in : memory((out + 1) * element, c, &c->out_arena);
    if (op.kind == PLAN_BROADCAST)
        c->in = NULL;
    if (c->in)
        plan_fill(&op, rank, c->in, in);
    else if (rank == op.root)
        plan_fill(&op, rank, c->out, op.rows);
    struct outcome *o = &member_report[rank].op[round][t];
    int status = start(name, &op, c);
    c->started = status == HVD_SUCCESS;
    if (!c->started)
        note(o, status);
}

static uint64_t hash(const void *data, size_t bytes)
{
    uint64_t h = 14695981039346656037ull;
    const uint8_t *at = data;

    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    while (bytes-- > 0)
        h = (h ^ *at++) * 1099511628211ull;
    return h;
}

static void check_rows(const struct plan_op *op, const struct call *c, struct rank_report *r)
{
    for (uint32_t from = 0; from < member_plan->size; from++) {
        size_t rows = op->kind == PLAN_ALLGATHER ? plan_rows_in(member_plan, op, from)
                                                 : plan_split(op, from, sim_current->index);
        if (c->rows_of[from] != rows)
            snprintf(r->wrong, sizeof r->wrong, "%zu rows of rank %u are told, it gave %zu", c->rows_of[from],
                     from, rows);
    }
}

static void finish(uint32_t round, uint32_t t, struct call *c)
{
    const struct plan_op *op = &member_plan->op[round][t];
    struct rank_report *r = &member_report[sim_current->index];
    struct library *l = mine();
    char text[100];

    if (!c->started || c->ended)
        return;
    for (int i = 0; !c->will_wait && chance_one_in(&sim_timing, 2) && i < POLLS && !l->hvd_poll(c->handle);
         i++)
        fiber_wait(sim_now + chance_below(&sim_timing, 100 * USEC));
    note(&r->op[round][t], l->hvd_wait(c->handle));
    c->ended = true;
    const void *out = op->kind == PLAN_SHARED ? c->shared : c->out;
    if (r->op[round][t].status == HVD_SUCCESS && op->odd == UINT32_MAX && !op->refused) {
        size_t bytes =
            plan_rows_out(member_plan, op, sim_current->index) * op->row * plan_dtype_size(op->dtype);
        uint64_t got = r->op[round][t].hash = hash(out, bytes), *known = &right[round][t];
        if (*known == got && plan_result_is_common(op))
            ; /* the same bits as another rank's */
        else if (plan_is_right(member_plan, op, sim_current->index, out, text, sizeof text))
            *known = got;
        else
            snprintf(r->wrong, sizeof r->wrong, "round %u, t%u: %s", round, t, text);
        if (op->kind == PLAN_ALLGATHER || op->kind == PLAN_ALLTOALL)
            check_rows(op, c, r);
    }
    if (op->kind == PLAN_PERSISTENT)
        l->hvd_handle_free(c->handle);
    if (c->in_arena && chance_one_in(&sim_timing, 2))
        l->hvd_free(op->kind == PLAN_BROADCAST ? c->out : c->in);
}

/* ---- the rank ------------------------------------------------------------------------------------------ */

static void shuffle(uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t k = (uint32_t)chance_below(&sim_timing, i), other = order[k];
        order[k] = order[i - 1];
        order[i - 1] = other;
    }
}

static void pause_a_little(void)
{
    if (chance_one_in(&sim_timing, 4))
        fiber_wait(sim_now +
                   chance_below(&sim_timing, chance_one_in(&sim_timing, 10) ? 10 * MSEC : 50 * USEC));
}

/* The join that ends a round in which some ranks have nothing to do. */
static void join(uint32_t round)
{
    struct rank_report *r = &member_report[sim_current->index];

    if (member_plan->idle[round])
        note(&r->join[round], mine()->hvd_join(&r->last[round]));
}

static void work(uint32_t round)
{
    struct call call[PLAN_TENSORS];
    uint32_t order[PLAN_TENSORS];
    bool waits_first = chance_one_in(&sim_timing, 2);

    shuffle(order, member_plan->tensors);
    for (uint32_t i = 0; i < member_plan->tensors; i++) {
        pause_a_little();
        if (!member_plan->op[round][order[i]].blocks)
            begin(round, order[i], &call[order[i]]);
    }
    for (uint32_t t = 0; t < member_plan->tensors; t++) {
        if (!member_plan->op[round][t].blocks)
            continue;
        begin(round, t, &call[t]);
        finish(round, t, &call[t]);
    }
    shuffle(order, member_plan->tensors);
    for (uint32_t i = 0; i < member_plan->tensors; i++) {
        if (!waits_first && i == member_plan->tensors / 2)
            join(round);
        if (!member_plan->op[round][order[i]].blocks)
            finish(round, order[i], &call[order[i]]);
    }
    if (waits_first)
        join(round);
}

static void run_round(uint32_t round)
{
    if (plan_is_idle(member_plan, round, sim_current->index))
        join(round);
    else
        work(round);
    if (member_plan->barrier[round])
        note(&member_report[sim_current->index].barrier[round], mine()->hvd_barrier(NULL));
}

void member_run(void *arg)
{
    struct sim_member *m = arg;
    struct rank_report *r = &member_report[m->rank];

    pause_a_little();
    note(&r->init, mine()->hvd_init());
    if (r->init.status == HVD_SUCCESS) {
        for (uint32_t i = 0; i < member_plan->rounds; i++)
            run_round(i);
        r->leaving = true;
        note(&r->end, mine()->hvd_shutdown());
    } else {
        note(&r->end, r->init.status);
    }
    sim_say("ends with %d", r->end.status);
}
