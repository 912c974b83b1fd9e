/* Hosts on which ranks have failed: for some time they get no new ranks. Pure; chance and time are arguments.
 *
 * As horovodrun: after the n-th failure, counted from 0, a host waits low * 2^n and a part of `low` by
 * chance, at least `low` and at most `high`. Without a range it gets no ranks any more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct blacklist_host {
    char *name;
    uint32_t failures;
    uint64_t until; /* ns; UINT64_MAX: without end */
};

struct blacklist {
    struct blacklist_host *host;
    size_t count;
    uint64_t low, high; /* ns; 0: no host is taken again */
};

/* A host has failed. `chance`: from 0 to below 1. -1: no memory. */
int blacklist_add(struct blacklist *b, const char *name, uint64_t now, double chance);
/* It cannot be used before that time, which is no failure. -1: no memory. */
int blacklist_pause(struct blacklist *b, const char *name, uint64_t until);
bool blacklist_has(const struct blacklist *b, const char *name, uint64_t now);
/* When the next host may be taken again; UINT64_MAX: none will. */
uint64_t blacklist_next(const struct blacklist *b, uint64_t now);
void blacklist_free(struct blacklist *b);
