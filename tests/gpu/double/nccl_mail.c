/* Sends and receives. All those of one group go on at the same time, as NCCL promises: each rank gives pieces
 * to its peers and takes pieces from them wherever that is possible, and sleeps when it is not. Those between
 * the same two ranks in the same direction keep their order. */
#include "tests/gpu/double/nccl_double.h"

#include <stdlib.h>
#include <string.h>

size_t nccl_area_size(int ranks)
{
    size_t n = (size_t)ranks;
    return (sizeof(struct area) + 4095) / 4096 * 4096 + n * CHUNK + n * n * sizeof(struct mail);
}

char *nccl_slot(struct comm *comm, int rank)
{
    return (char *)comm->area + (sizeof(struct area) + 4095) / 4096 * 4096 + (size_t)rank * CHUNK;
}

struct mail *nccl_mail(struct comm *comm, int from, int to)
{
    struct mail *first = (struct mail *)nccl_slot(comm, comm->size);
    return first + from * comm->size + to;
}

struct transfer {
    const struct op *op;
    char *at;
    size_t bytes, done;
};

enum outcome { STUCK, MOVED, WRONG };

static enum outcome give(struct comm *comm, struct transfer *t)
{
    struct mail *mail = nccl_mail(comm, comm->rank, t->op->root);
    size_t n = t->bytes - t->done < MAIL ? t->bytes - t->done : MAIL;

    if (mail->written != mail->read)
        return STUCK;
    memcpy(mail->data, t->at + t->done, n);
    mail->total = t->bytes;
    mail->bytes = (uint32_t)n;
    mail->written++;
    t->done += n;
    nccl_ring(comm->area, t->op->root);
    return MOVED;
}

static enum outcome take(struct comm *comm, struct transfer *t)
{
    struct mail *mail = nccl_mail(comm, t->op->root, comm->rank);

    if (mail->written == mail->read)
        return STUCK;
    if (mail->total != t->bytes) {
        double_misuse("rank %d receives %zu bytes from rank %d, which sends %llu", comm->rank, t->bytes,
                      t->op->root, (unsigned long long)mail->total);
        return WRONG;
    }
    memcpy(t->at + t->done, mail->data, mail->bytes);
    t->done += mail->bytes;
    mail->read++;
    nccl_ring(comm->area, t->op->root);
    return MOVED;
}

static bool behind_another(const struct transfer *all, int i)
{
    for (int k = 0; k < i; k++)
        if (all[k].done < all[k].bytes && all[k].op->kind == all[i].op->kind &&
            all[k].op->root == all[i].op->root)
            return true;
    return false;
}

/* Moves as many bytes as possible now. WRONG: sizes differ. */
static enum outcome round_of(struct comm *comm, struct transfer *all, int n, bool *left)
{
    enum outcome whole = STUCK;

    *left = false;
    for (int i = 0; i < n; i++) {
        enum outcome one = STUCK;

        if (all[i].done == all[i].bytes)
            continue;
        if (!behind_another(all, i))
            one = all[i].op->kind == KIND_SEND ? give(comm, &all[i]) : take(comm, &all[i]);
        if (one == WRONG)
            return WRONG;
        whole = one == MOVED ? MOVED : whole;
        *left |= all[i].done < all[i].bytes;
    }
    return whole;
}

static bool go_on(struct comm *comm, struct transfer *all, int n)
{
    struct member *me = &comm->area->member[comm->rank];
    bool left = n > 0;

    while (left) {
        uint32_t bell = me->bell;
        enum outcome outcome;

        if (comm->aborted)
            return false;
        outcome = round_of(comm, all, n, &left);
        if (outcome == WRONG)
            return false;
        if (outcome == STUCK && left)
            double_futex_wait(&me->bell, bell);
    }
    return true;
}

bool nccl_exchange_mail(struct comm *comm, const struct op *op, int n)
{
    struct transfer *all = calloc((size_t)n + 1, sizeof *all);
    int used = 0;
    bool done;

    if (!all)
        abort();
    for (int i = 0; i < n; i++) {
        struct transfer *t = &all[used];

        if (op[i].kind != KIND_SEND && op[i].kind != KIND_RECV)
            continue;
        t->op = &op[i];
        t->bytes = op[i].count * nccl_width(op[i].type);
        t->at = double_reach((uintptr_t)(op[i].kind == KIND_SEND ? op[i].send : op[i].recv), t->bytes);
        if (t->bytes && !t->at) {
            double_misuse("%s: its buffer was freed before it ran", nccl_kind(op[i].kind));
            free(all);
            return false;
        }
        used++;
    }
    done = go_on(comm, all, used);
    free(all);
    return done;
}
