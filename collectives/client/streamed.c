/* An allreduce between hosts whose elements go piece by piece (local/pipeline.h): this rank's part.
 *
 * All members of this host have arrived, and the engine has made the host's buffer. Each member brings its
 * part of every piece there (PHASE_PACK). The engine sends what is complete meanwhile. Then each member
 * copies the pieces out whose result is final, until the operation is settled.
 *
 * A member may find that another one does not stream. Then it copies its elements to shared memory as a
 * whole, and tells the engine, which waits for that. A member that cannot map the memory of another one has
 * told the engine so: the job ends, and this operation with it. */
#include "collectives/client/arena.h"
#include "collectives/client/operation.h"
#include "collectives/local/pipeline.h"

/* Finds the places of the other members and the buffer. false: they cannot be. */
static bool begin_packing(struct tensor *t, uint64_t address)
{
    struct tensor_view *v = &t->view;
    struct tensor_resolver resolver = {arena_resolve, NULL};
    int status = tensor_open(v, t->name, &resolver, t->text, sizeof t->text);
    bool possible = status == HVD_SUCCESS && v->streamed && address % SHM_LINE == 0;
    void *host = possible ? arena_resolve(NULL, address, stream_host_bytes(v)) : NULL;
    if (host) {
        v->stream.host = host;
        t->phase = PHASE_PACK;
    } else {
        v->streamed = false;
        t->op.where.is_streamed = false;
    }
    return host != NULL;
}

static bool look_for_host(struct tensor *t)
{
    uint64_t address;
    if (stream_has_host(&t->view, &address))
        return begin_packing(t, address);
    if (!tensor_arrived(&t->view) && stream_must_stage(&t->view)) {
        operation_stage(t);
        if (tensor_arrived(&t->view))
            engine_tell(t->slot, &t->notified);
    }
    return true;
}

/* The last member to finish a piece tells the engine. */
static void pack_piece(struct tensor *t)
{
    struct tensor_view *v = &t->view;
    uint32_t before = v->mine;
    stream_step(v);
    if (v->mine != before && stream_packed_pieces(v) >= v->mine)
        engine_tell(t->slot, &t->notified);
    if (stream_gave_all(v))
        t->phase = PHASE_REMOTE;
}

bool streamed_step(struct tensor *t)
{
    if (t->phase == PHASE_REMOTE && !t->view.stream.host)
        return look_for_host(t);
    if (t->phase == PHASE_PACK)
        pack_piece(t);
    else /* all of my elements are there */
        stream_take_final(&t->view);
    return true;
}

bool streamed_has_step(const struct tensor *t)
{
    return t->phase == PHASE_PACK ? stream_has_step(&t->view)
                                  : t->view.stream.host && stream_has_final(&t->view);
}

void streamed_take(struct tensor *t)
{
    while (stream_take_final(&t->view))
        ;
}
