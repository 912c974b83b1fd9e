/* FNV-1a (Fowler, Noll, Vo): for tables of names, and to compare lists by one number. Not against an attacker
 * who looks for two names with the same hash: tables compare the names, too. */
#pragma once

#include <stdint.h>

/* Of a string; the same text has another hash for another `salt`. */
static inline uint32_t hash_text(uint32_t salt, const char *text)
{
    uint32_t hash = 2166136261u ^ salt;

    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 16777619u;
    return hash;
}

/* A list of numbers: begin with HASH_EMPTY, then each number in turn. */
#define HASH_EMPTY 14695981039346656037u
static inline uint64_t hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        hash = (hash ^ (number >> 8 * i & 0xff)) * 1099511628211u;
    return hash;
}
