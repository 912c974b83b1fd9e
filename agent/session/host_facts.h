/* Facts about this host for the launcher: its name, slots, addresses, free ports. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* The number of `auto` slots: the GPUs that CUDA_VISIBLE_DEVICES (NULL: unset) leaves, else 1. */
uint32_t host_slots(const char *visible);
/* TCP ports that are free, each another one, and that the kernel gives to nobody who does not ask for them by
 * number: between now and the moment when a worker binds one lies the start of all hosts. Returns how many
 * were found, of the `count` wanted. */
size_t host_free_ports(uint32_t *port, size_t count);
/* Bytes of the file system behind /dev/shm; UINT64_MAX: not known. libhvd does not use it, other libraries
 * do. */
uint64_t host_shared_memory(void);
/* The names of the interfaces that have these addresses, in their order, each once, by comma; lo when there
 * is no address. Names without room are left out. */
void host_interfaces(char *const *address, size_t count, char *names, size_t size);
/* This host's numeric addresses, best first, in a new array of new strings. -1 with *e: none is left by the
 * filter. */
int host_addresses(const char *const *filter, size_t filters, char ***out, size_t *count, struct err *e);
void host_addresses_free(char **address, size_t count);
