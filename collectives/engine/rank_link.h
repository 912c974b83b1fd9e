/* A connection between the only ranks of two hosts, over which they exchange small tensors themselves
 * (client/rank_link.c says how). The engines make it when a rank first asks, in the way of the data links:
 * authenticated, on the interface of the engines' own link, on a port of --port-range. Both engines agree
 * whether there is one, so both ranks do. Encrypted and elastic jobs have none. */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/worker_socket.h"

extern const struct engine_part rank_link_part;

/* WORKER_RANK_LINK: answers at once, or when both engines know whether there is a connection. */
void rank_link_ask(struct engine *engine, const struct worker_message *question);
/* The operation that this host's only rank is in, or will begin next; `otherwise` where ranks have no such
 * connection, and the engine has seen them all. */
uint32_t rank_link_operation(const struct engine *engine, const struct tensor_view *v, uint32_t otherwise);
/* The rank has begun an operation of the name, and has not ended it: over the connection or by the engine,
 * which may not have heard of it. */
bool rank_link_is_busy(const struct engine *engine, const struct tensor_view *v);
/* The rank has ended that operation of the slot over the connection. */
bool rank_link_carried(const struct engine *engine, uint32_t slot, uint32_t operation);
/* The same of that operation or a later one. */
bool rank_link_went_on(const struct engine *engine, uint32_t slot, uint32_t operation);
