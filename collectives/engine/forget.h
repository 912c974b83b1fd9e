/* Names are forgotten, so that a job may have any number of them.
 *
 * A member holds a slot from its question for the name until it gives the slot back. When few slots are
 * free, the engine asks all members for the slots of their idle tensors: it counts `wanting` in the header,
 * and rings. Each member gives back what is idle, and says which `wanting` that answers. A slot that no
 * member holds, and in which the engine has nothing to do either, is free again: its words are zeroed, its
 * name is forgotten. A name that the engine has made for a rank in hvd_join goes the same way.
 *
 * A member that finds no free slot waits until all members have answered. If none is free then either, the
 * member waits on while others have operations that have ended and that they have yet to wait for. Else so
 * many tensors are pending at once. Between hosts a tensor is known by its name: each host forgets alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine;
struct err;
struct set;
struct worker_message;

struct holding {
    uint64_t *member; /* [SHM_SLOTS][words]: a bit for each member that holds the slot */
    uint32_t words;
    uint32_t ask_at;     /* the members are asked when so few slots are free */
    uint32_t freed;      /* slots since they were asked last */
    uint64_t since;      /* when a member found no slot, or slots became free after that */
    bool awaited;        /* a member waits for a slot */
    bool answer_awaited; /* or for the others' answers */
};

/* false: no memory. */
bool forget_begin(struct engine *engine);
void forget_end(struct engine *engine);
/* The member holds the slot from now on. */
void forget_hold(struct engine *engine, uint32_t slot, uint32_t member);
/* A member gives slots back: WORKER_FORGET. */
void forget_given(struct engine *engine, uint32_t member, const struct worker_message *m);
/* As names_make. If no slot is free, names without a holder are forgotten. If few are free, the members are
 * asked. */
int forget_for(struct engine *engine, struct set *set, const char *text, uint32_t *slot, struct err *e);
#define FORGET_FOR_ALL UINT32_MAX
/* No slot is free for the member (FORGET_FOR_ALL: for ranks in hvd_join). `asked`: the `wanting` that it was
 * told before, 0: none. true: *wanting is to be answered by all members, and may free some. false: there is
 * no hope. */
bool forget_more(struct engine *engine, uint32_t member, uint32_t asked, uint32_t *wanting);
