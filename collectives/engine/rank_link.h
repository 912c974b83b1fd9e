/* Connections between ranks that are the only ones of their hosts, over which they exchange small tensors
 * themselves (client/link/rank_link.h says how); up to LINK_HOSTS_MAX hosts. The engines make them when a
 * rank first asks, in the way of the data links: authenticated, on the interfaces of the engines' own links,
 * on a port of --port-range. All engines agree whether there are any, so all ranks do. Encrypted and elastic
 * jobs have none. */
#pragma once

#include "collectives/engine/core.h"
#include "collectives/local/tensor.h"
#include "collectives/shm/worker_socket.h"

extern const struct engine_part rank_link_part;

/* Fills in what decides whether ranks are connected, and which way their elements go. */
void rank_link_advertise(const struct engine *engine, Hvd__Link *link);
/* The engines of all hosts know of each other. */
void rank_link_meet(struct engine *engine, Hvd__Link *const *link, size_t links);
/* This host's rank has come. */
void rank_link_welcome(struct engine *engine, const struct worker_message *hello);
/* WORKER_RANK_LINK: answers at once, or when all engines know whether there are connections. */
void rank_link_ask(struct engine *engine, const struct worker_message *question);
/* The operation that this host's only rank is in, or will begin next; `otherwise` where ranks have no such
 * connection, and the engine has seen them all. */
uint32_t rank_link_operation(const struct engine *engine, const struct tensor_view *v, uint32_t otherwise);
/* The rank has begun an operation of the name, and has not ended it: over the connection or by the engine,
 * which may not have heard of it. */
bool rank_link_is_busy(const struct engine *engine, const struct tensor_view *v);
/* The rank is in that operation, and its process is stopped. */
bool rank_link_is_stopped(const struct engine *engine, const struct tensor_view *v, uint32_t operation);
/* The rank has ended that operation of the slot over the connection. */
bool rank_link_carried(const struct engine *engine, uint32_t slot, uint32_t operation);
/* The same of that operation or a later one. */
bool rank_link_went_on(const struct engine *engine, uint32_t slot, uint32_t operation);
