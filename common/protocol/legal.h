/* The messages that are legal in each state: a table for each receiver, asked in one place before anything
 * that a message says is believed.
 *
 * A message is heard in some states of the receiver. In others an honest peer may have sent it before it
 * could know better: there it is dropped without a word. In all other states it is refused, and so is a
 * second one where there can be one only. Refused messages are dropped and counted; a warning names a peer's
 * first. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct legal_row {
    unsigned message;     /* number of the body, or kind */
    uint32_t heard, late; /* states, as bits */
    bool once;            /* heard once */
};

struct legal_table {
    const struct legal_row *row;
    size_t count; /* at most 64 */
    const char *(*name)(unsigned message);
};

#define LEGAL_TABLE(rows, name)                                                                              \
    {                                                                                                        \
        rows, sizeof rows / sizeof *rows, name                                                               \
    }
/* The states from `first` to `last`. */
#define LEGAL_STATES(first, last) ((uint32_t)((2ull << (last)) - (1ull << (first))))

/* Of one peer; zeroes at the beginning. */
struct legal {
    uint64_t had; /* rows of which there can be one only */
    uint64_t refused;
};

/* True when the message is to be heard. `peer` and `state` are names, for the warning. */
bool legal_hears(struct legal *l, const struct legal_table *t, unsigned message, unsigned state,
                 const char *peer, const char *state_name);
/* Refuses one that the table lets through; `why` is a half sentence: "that rank is not there". */
void legal_refuse(struct legal *l, const char *peer, const char *message, const char *why);
/* At the peer's end: how many there were, if more than the one that was told. */
void legal_end(const struct legal *l, const char *peer);

/* The name of a body of Control or Engine, and of a kind of Pmix. */
const char *legal_control_name(unsigned body);
const char *legal_engine_name(unsigned body);
const char *legal_pmix_name(unsigned kind);
