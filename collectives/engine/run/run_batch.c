/* Runs whose tensors travel as one (fusion.h).
 *
 * The first one leads: it goes through the phases of a run, with one borrowed buffer in which the tensors lie
 * one after the other. Its members are packed and spread in their order, a piece a turn, and each is settled
 * when it is spread. */
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/engine/agree/fusion.h"
#include "collectives/engine/run/run.h"

bool batch_add(struct run *leader, struct run *member)
{
    struct run *last = leader;
    while (last->batch)
        last = last->batch;
    /* In flat mode nothing is reduced on its host, so nothing may travel as one. */
    if (leader->engine->options.flat || !last->entry.joined ||
        !fusion_can(&leader->entry.desc.what, UINT64_MAX) || member->entry.error[0] || member->entry.data ||
        !fusion_goes_with(&leader->entry.desc.what, &member->entry.desc.what))
        return false;
    last->batch = member;
    return true;
}

void batch_begin(struct run *leader)
{
    const struct tensor_op *op = &leader->view->op;
    uint64_t total = leader->view->op.count;
    for (struct run *m = leader->batch; m; m = m->batch) {
        if (!run_find(m)) {
            leader->phase = RUN_SETTLED;
            return;
        }
        m->at = total;
        total += m->view->op.count;
    }
    for (const struct run *m = leader; m; m = m->batch)
        if (m->view->streamed) { /* too large to be fused */
            run_fail(leader, HVD_ERR_PEER, "the execution list joins what does not go together");
            return;
        }
    leader->total = total;
    leader->turn = leader;
    leader->data = run_borrow(leader, 0, total * dtype_size(op->dtype));
    if (!leader->data || !run_choose_wire(leader, total))
        run_out_of_memory(leader, "no memory for an operation between hosts");
    else
        leader->phase = RUN_PACK;
}

/* Elements of the member whose turn it is that are in this piece; the budget shrinks. */
static uint64_t take_budget(const struct run *m, uint64_t *budget)
{
    uint64_t left = m->view->op.count - m->progress, n = left < *budget ? left : *budget;
    *budget -= n;
    return n;
}

/* They are done. true: so is the member; it is the next one's turn. */
static bool advance_turn(struct run *leader, uint64_t n)
{
    struct run *m = leader->turn;
    m->progress += n;
    if (m->progress < m->view->op.count)
        return false;
    m->progress = 0;
    leader->turn = m->batch;
    return true;
}

void batch_pack(struct run *leader)
{
    uint64_t budget = RUN_PIECE_BYTES / dtype_size(leader->view->op.dtype);
    while (leader->turn && budget > 0) {
        struct run *m = leader->turn;
        uint64_t n = take_budget(m, &budget);
        run_reduce(leader, m->view, m->at + m->progress, m->progress, n);
        advance_turn(leader, n);
    }
    if (!leader->turn)
        run_start_network(leader, leader->total);
}

static void spread_part(const struct run *leader, const struct run *m, uint64_t n)
{
    size_t size = dtype_size(m->view->op.dtype);
    const char *from = leader->data + (m->at + m->progress) * size;
    run_expand(leader, m->at + m->progress, n);
    if (m->view->place == SHM_INLINE)
        memcpy(m->view->slot->result + m->progress * size, from, n * size);
    for (uint32_t i = 0; m->view->place != SHM_INLINE && i < m->view->team->members; i++)
        if (m->view->out[i])
            memcpy((char *)m->view->out[i] + m->progress * size, from, n * size);
}

void batch_spread(struct run *leader)
{
    uint64_t budget = RUN_PIECE_BYTES / dtype_size(leader->view->op.dtype);
    if (!leader->turn)
        leader->turn = leader;
    while (budget > 0) {
        struct run *m = leader->turn;
        uint64_t n = take_budget(m, &budget);
        spread_part(leader, m, n);
        if (advance_turn(leader, n) && m != leader)
            run_settle(m, HVD_SUCCESS, NULL);
        if (!leader->turn) {
            run_settle(leader, HVD_SUCCESS, NULL); /* the last, since its phase is everybody's */
            return;
        }
    }
}
