/* The socket between a worker and its engine: for what is rare. Everything frequent goes through the control
 * region.
 *
 * The worker asks, the engine answers, one at a time; every message is one struct of fixed size, with
 * descriptors beside it where the table says so. The first one must be HELLO. An answer has the question's
 * type, and a status other than 0 with a sentence in `text` when the question failed; after a failed HELLO
 * the engine closes.
 *
 *   question     fields                     fds        answer fields          fds
 *   HELLO        token, rank, epoch, id, set  -        text: worker_place     region, kick (an eventfd)
 *   NAME         set, text: a name, epoch, id -        id: its slot, epoch    -
 *   ADD_SEGMENT  -                          segment    id                     -
 *   GET_SEGMENT  id                         -          -                      segment
 *   ADD_SET      set, id, text: ranks       -, ranks   -                      -
 *   REMOVE_SET   set                        -          -                      -
 *   SLOT         id: a slot of a name       -          set, text: its name    -
 *   FORGET       id, epoch, text: slots     -          -                      -
 *   JOIN         id: 1 begins, 0 ends       -          -                      -
 *   INITIALIZED  -                          -          -                      -
 *   SHUT_DOWN    -                          -          -                      -
 *   FAILED       text: why                  -          -                      -
 *   ABORT        text: why                  -          -                      -
 *   NOTE         text: a line of the log, id  -        -                      -
 *   FLIGHT       -                          -          id                     the flight recorder
 *   RANK_LINK    id                         -          id: how many, set      -, the connections
 *   DEVICE_OPEN    uuid                     -          gpu, nccl, capability, host  -
 *   DEVICE_MEMORY  gpu, bytes, handle       -, memory  id                     -
 *   DEVICE_SPAN    gpu                      numbers    id                     -
 *   DEVICE_FORGET  id                       -          id                     -
 *   DEVICE_JOIN    set, gpu, rank, size, nccl_id, given, done  -  -           -
 *   DEVICE_LEAVE   set                      -          -                      -
 *   DEVICE_CLOSE   -                        -          -                      -
 *
 * FAILED: this rank cannot do its part of what others have begun with it; the job ends. ABORT: this rank has
 * failed and says why; the job ends. INITIALIZED: all ranks are in hvd_init. SHUT_DOWN: hvd_shutdown was
 * called. HELLO: in an elastic job `id` is 1, `rank` is the worker's number, and `epoch` the membership that
 * the worker was in last, 0: none. The answer comes when a membership with the worker has begun, and has the
 * worker's place. HVD_ERR_LEFT: the worker is not in the membership. ADD_SET: the first member that asks
 * makes the set, the others find the same ranks, or are refused.
 * The ranks are uint32_t in ascending order: `id` of them in `text`, or, when `id` is 0, in a sealed file.
 * REMOVE_SET: of a set that may have gone. A set's id is the ranks' to agree about. JOIN: this rank is in
 * hvd_join from now on, or is not any more. SLOT: an empty name if the rank has no part in it.
 * NOTE: libhvd writes nothing itself. A sentence for the user goes to the engine's log, at the level `id`; a
 * warning or an error names the rank and its host. FLIGHT: `id` is the number of this worker's rings. An
 * answer without a descriptor: nothing is recorded.
 *
 * RANK_LINK: the connections to the only ranks of the other hosts, in the order of their ranks. Without
 * descriptors there are none in this epoch. `id` 1: this rank needs none; if the others have them already,
 * this rank gets them all the same. The answer's `set` is WORKER_LINKS_CROWDED if the ranks of these hosts
 * share processors, else WORKER_LINKS_NEAR if the hosts are one machine. HELLO: `set` is WORKER_SEVERAL_LINKS
 * if the worker can have several.
 *
 * FORGET: this rank gives back `id` slots, which stand in `text` as uint32_t. The last of several messages
 * says in `epoch` which `wanting` of the header it answers; the others say 0. NAME: no slot is free when the
 * answer's id is SHM_SLOTS. Then `epoch` is the `wanting` that all ranks of the host have to answer. The rank
 * asks again with that number when its bell was rung. A set of hvd_set_open whose ranks are all on this host,
 * and few, needs no ADD_SET: `id` of them stand behind the name's NUL.
 *
 * DEVICE_...: their fields are a struct worker_device in `text`. OPEN: the engine is to use that GPU. MEMORY:
 * the rank's becomes the engine's too, by its IPC handle or as a descriptor. SPAN: several that came as
 * descriptors are wanted one behind the other, as the rank has them, and that is one more memory; `numbers`
 * is a file as `ranks` is. FORGET: memory has gone, 0: none; the answer's id is how many of the rank's the
 * engine has yet to close. MEMORY's is 0 when that is in the way: it can be asked again. JOIN: a communicator
 * of this rank in the team, with the events that come before and behind each operation; how it is, is in the
 * member slot of SHM_DEVICE_NAME. LEAVE: it ends when all have left. CLOSE: nothing of this rank is used any
 * more. */
#pragma once

#include <stdint.h>

#include "collectives/shm/layout.h"
#include "common/base/err.h"

#define WORKER_TOKEN_SIZE  16
#define LINK_HOSTS_MAX     8 /* their only ranks may be connected with each other */
#define WORKER_FDS_MAX     (LINK_HOSTS_MAX - 1)
#define WORKER_HELLO_FDS   2
#define WORKER_MESSAGE_TAG 0x68764433u /* layout version of this message */

enum worker_message_type {
    WORKER_HELLO = 1,
    WORKER_NAME,
    WORKER_ADD_SEGMENT,
    WORKER_GET_SEGMENT,
    WORKER_ADD_SET,
    WORKER_REMOVE_SET,
    WORKER_SLOT,
    WORKER_JOIN, /* id: enum worker_join */
    WORKER_INITIALIZED,
    WORKER_SHUT_DOWN,
    WORKER_FAILED,
    WORKER_DEVICE_OPEN,
    WORKER_DEVICE_MEMORY,
    WORKER_DEVICE_SPAN,
    WORKER_DEVICE_FORGET,
    WORKER_DEVICE_JOIN,
    WORKER_DEVICE_LEAVE,
    WORKER_DEVICE_KNOW,
    WORKER_DEVICE_CLOSE,
    WORKER_NOTE,
    WORKER_ABORT,
    WORKER_FORGET,
    WORKER_STAGE, /* id: of hvd_stage */
    WORKER_FLIGHT,
    WORKER_RANK_LINK, /* id: 1: this rank will use none */
    WORKER_TYPE_END
};

/* The place of a worker of an elastic job in a membership. */
struct worker_place {
    int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
    uint32_t membership;
};

#define WORKER_SEVERAL_LINKS 1
#define WORKER_LINKS_CROWDED 1
#define WORKER_LINKS_NEAR    2

/* WORKER_JOIN's id. WORKER_REFUSES: the rank waits in hvd_shutdown, and fails what others begin. */
enum worker_join { WORKER_JOINS_NOT, WORKER_JOINS, WORKER_REFUSES };

struct worker_message {
    uint32_t tag;
    uint32_t type;
    int32_t status;
    uint32_t rank, epoch;
    uint32_t id;
    int32_t set;
    uint8_t token[WORKER_TOKEN_SIZE];
    char text[SHM_TEXT_MAX]; /* ended by a NUL */
};

#define WORKER_NUMBERS_MAX (SHM_TEXT_MAX / sizeof(uint32_t) - 1) /* in `text`, whose last byte is a NUL */
#define WORKER_BEHIND_MAX  ((SHM_TEXT_MAX - SHM_NAME_MAX - 2) / sizeof(uint32_t)) /* behind a name there */

/* Sends all of it. -1 with *e (ERR_CLOSED when the other end has gone). */
int worker_send(int fd, const struct worker_message *m, const int *fds, unsigned number_of_fds,
                struct err *e);

/* Collects a message that may arrive in pieces. */
struct worker_reader {
    struct worker_message message;
    size_t have;
    int fds[WORKER_FDS_MAX];
    unsigned number_of_fds;
};
void worker_reader_reset(struct worker_reader *r); /* closes descriptors that nobody took */
/* 1: a whole message is there; its descriptors are the reader's until taken (set to -1). 0: not yet (the
 * socket does not block and is empty, or its time-out has passed). -1: the peer has gone or sends something
 * else. */
int worker_receive(int fd, struct worker_reader *r, struct err *e);
