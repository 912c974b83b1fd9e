/* train --elastic: ranks die, and come and go, and the others train on.
 *
 *   step, keep, is a change due? -> step ...
 *         |                yes, or a rank has died
 *         '---- restore <- hvd_reset <-'   then the state of the rank that is furthest
 *
 * The samples of a step do not depend on the number of ranks, so the losses are those of a job in which
 * nothing happened. A rank may be one step behind another one when a rank dies, and a new rank has no state
 * at all: these receive. When all ranks are at one step, they exchange its number and nothing else. */
#include <stdio.h>

#include "trainer.h"

void elastic_keep(struct trainer *t)
{
    trainer_get_state(t);
    t->kept = t->state.step;
}

int elastic_is_due(struct trainer *t)
{
    uint8_t due = hvd_membership_changed() > 0;
    int status = HVD_SUCCESS;

    if (t->stepped != hvd_membership()) /* the first step of the membership is done */
        status = hvd_stage(HVD_STAGE_STEP);
    t->stepped = hvd_membership();
    if (status == HVD_SUCCESS)
        status = hvd_allreduce("train.due", &due, &due, 1, HVD_UINT8, HVD_MAX, NULL);
    return status < 0 ? status : due;
}

/* *root: the lowest rank that is at the highest step; *behind: how many ranks are not there. */
static int find_state(const struct trainer *t, int32_t *root, int32_t *behind)
{
    int64_t highest = t->kept;
    int status = hvd_allreduce("train.highest", &highest, &highest, 1, HVD_INT64, HVD_MAX, NULL);

    if (status < 0)
        return status;
    if (highest < 0)
        trainer_end(t, "no rank is left that has the state of the training", 1);
    *root = t->kept == highest ? hvd_rank() : hvd_size();
    *behind = t->kept != highest;
    status = hvd_allreduce("train.root", root, root, 1, HVD_INT32, HVD_MIN, NULL);
    return status < 0 ? status : hvd_allreduce("train.behind", behind, behind, 1, HVD_INT32, HVD_SUM, NULL);
}

int elastic_enter(struct trainer *t)
{
    struct fault f = {""};
    int32_t root, behind;
    int status = find_state(t, &root, &behind);

    if (status < 0)
        return status;
    if (trainer_divide(t, &f) < 0)
        trainer_end(t, f.text, 2);
    status = behind > 0 ? trainer_broadcast(t, root) : HVD_SUCCESS;
    if (status == HVD_SUCCESS)
        status = hvd_stage(HVD_STAGE_STATE);
    if (status == HVD_SUCCESS) {
        elastic_keep(t);
        if (t->rank == 0)
            printf("train: %d rank%s at step %lld, %d received the state\n", t->size, t->size == 1 ? "" : "s",
                   (long long)t->kept, (int)behind);
    }
    return status;
}

void elastic_rejoin(struct trainer *t)
{
    int status;

    do {
        t->state.step = t->kept;
        trainer_put_state(t);
        status = hvd_reset();
        t->left = status == HVD_ERR_LEFT;
        if (t->left)
            return;
        trainer_check(t, status, "hvd_reset");
        status = elastic_enter(t);
    } while (status == HVD_ERR_PEER);
    trainer_check(t, status, "the state");
}
