/* A broadcast, allgather or alltoall of private memory in which every member of the host waits: like a
 * streamed allreduce (pipeline.h), but nothing is computed, so the elements pass from one member's memory
 * through its place to the others' memory: two copies, at different members at the same time.
 *
 * The elements that a member gives are cut into pieces; a place holds PASS_PIECES of them. Everybody goes
 * through rounds: in round k it copies, of every other member's piece k, what is for it, as soon as that is
 * given. A member counts the rounds it has finished; so a giver sees when nobody touches a piece's part of
 * its place any more. A member copies its elements for itself when it has nothing else to do. In an alltoall
 * a member gives first what is for the next one, so that not all read from the same one. */
#ifndef HVD_COLLECTIVES_LOCAL_PIPELINE_COPY_H
#define HVD_COLLECTIVES_LOCAL_PIPELINE_COPY_H

#include "collectives/local/tensor_view.h"

/* After tensor_open has set v->streamed and found everything. */
void pass_plan(struct tensor_view *v);
/* As stream_step and those that follow it. */
bool pass_step(struct tensor_view *v);
bool pass_has_step(const struct tensor_view *v);
bool pass_ended(const struct tensor_view *v);

#endif
