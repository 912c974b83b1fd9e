/* The last call on an NCCL communicator, ncclCommAbort or ncclCommDestroy, in a thread of its own: both may
 * block for as long as a network or a GPU likes. */
#pragma once

#include <stdbool.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"

struct ending;

/* Begins it: `call` is n->ncclCommAbort or n->ncclCommDestroy, `context` is current in the thread. Then frees
 * `memory` (or 0) of the GPU, which waits for all that runs there. NULL: no memory or no thread, and it was
 * done here and now. */
struct ending *ending_begin(const struct driver *d, cu_context context, nccl_result (*call)(nccl_comm),
                            nccl_comm comm, cu_pointer memory);
/* Has it ended? Waits for that, at most so long. NULL: yes. */
bool ending_wait(struct ending *x, int patience_ms);
/* Have all ended, of this process, those included that nobody asks for any more? Waits for that, at most so
 * long. A process that exits before takes from NCCL what its threads still use. */
bool endings_wait(int patience_ms);
/* Nobody asks any more; what belongs to the thread is freed when it ends. NULL is ignored. */
void ending_leave(struct ending *x);
