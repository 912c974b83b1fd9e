/* Copies of much memory.
 *
 * Memory that fits into no cache is copied a line at a time and asked for some lines ahead, also across
 * pages, where processors do not look ahead by themselves: two thirds of the time of the C library's copy,
 * which is used for the rest. */
#pragma once

#include <stddef.h>

/* As memcpy; no bytes need no pointers. */
void copy_bytes(void *to, const void *from, size_t bytes);
