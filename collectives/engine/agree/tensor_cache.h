/* Tensors that were on the execution list, by number: what a report or an entry says instead of a description
 * (pure).
 *
 * Every host of a list puts what it reads there into its cache, in the order of the list, so a number means
 * the same tensor everywhere. A number is never given to another name: when the cache is full, later names
 * travel in full. A tensor that comes back with another description (or in memory that is known
 * otherwise) travels in full too and replaces the old
 * one; between two entries of one name every host has seen the first, so nobody can mean the old one then. */
#pragma once

#include <stdint.h>

#include "collectives/engine/agree/execution_list.h"

#define TENSOR_CACHE_NONE UINT32_MAX
#define TENSOR_CACHE_MAX  (1u << 20)

struct tensor_cache;

/* `capacity` names at most; 0: nothing is kept. NULL: no memory. */
struct tensor_cache *tensor_cache_new(uint32_t capacity);
void tensor_cache_free(struct tensor_cache *cache);
/* The number of exactly this description. TENSOR_CACHE_NONE: there is none. */
uint32_t tensor_cache_find(const struct tensor_cache *cache, const struct tensor_desc *desc);
/* NULL: nothing has that number. */
const struct tensor_desc *tensor_cache_get(const struct tensor_cache *cache, uint32_t number);
/* Room for so many more names: a put of those cannot fail. -1: no memory. */
int tensor_cache_reserve(struct tensor_cache *cache, uint32_t names);
/* An entry of the list: each, in their order, but for those with an error. -1: no memory. */
int tensor_cache_put(struct tensor_cache *cache, const struct tensor_desc *desc);
