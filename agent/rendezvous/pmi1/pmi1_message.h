/* PMI-1's lines, and what sessions tell each other about them. Pure.
 *
 * A line is words NAME=VALUE between single spaces; the first is cmd=COMMAND, the last ends with a newline.
 * No value holds a space, but for the message of cmd=abort (MPICH 4.2 and newer): a sentence up to the end of
 * the line. The only command of more than one line is mcmd=spawn, which ends with a line "endcmd".
 *
 * Between sessions: records one after another, so that the blobs of many hosts may simply be joined.
 *
 *   u8 PMI1_PUT     u16 length of the key, the key, u16 length of the value, the value
 *   u8 PMI1_FAILED  u16 length of the reason, the reason */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/cursor.h"
#include "common/base/err.h"

/* As Hydra has them: MPICH cuts its values to fit. */
#define PMI1_NAME_MAX   256 /* of the key-value space's name; with the 0 at its end, like those below */
#define PMI1_KEY_MAX    64
#define PMI1_VALUE_MAX  1024
#define PMI1_LINE_MAX   4096 /* with the newline */
#define PMI1_FIELDS_MAX 16
#define PMI1_RECORD_MAX (1 + 2 + PMI1_KEY_MAX + 2 + PMI1_VALUE_MAX)

struct pmi1_field {
    const char *name, *value;
};

struct pmi1_message {
    const char *command;
    bool multi; /* mcmd= */
    struct pmi1_field field[PMI1_FIELDS_MAX];
    size_t fields;
};

/* Parses a line of `len` bytes without its newline; line[len] is writable. Writes zeros into the line, to
 * which the message points afterwards. -1 with *e: it is none. */
int pmi1_parse(char *line, size_t len, struct pmi1_message *m, struct err *e);
/* NULL when there is no such field. */
const char *pmi1_get(const struct pmi1_message *m, const char *name);
/* A decimal number up to `max`; false when the field is missing or no such number. */
bool pmi1_get_number(const struct pmi1_message *m, const char *name, uint32_t max, uint32_t *number);
/* A sentence as one value: what may not be in a value becomes '_'. Returns `out`. */
char *pmi1_word(const char *text, char *out, size_t size);

/* PMI_process_mapping: which node each rank is on, as "(vector,(first node,nodes,ranks on each),...)". 0, or
 * -1 when it does not fit: clients find out by themselves then. */
int pmi1_mapping(Hvd__HostRanks *const *host, size_t hosts, char *out, size_t size);

enum pmi1_record_kind { PMI1_PUT = 1, PMI1_FAILED };

struct pmi1_record {
    enum pmi1_record_kind kind;
    char key[PMI1_KEY_MAX];     /* of PMI1_PUT */
    char value[PMI1_VALUE_MAX]; /* or the reason */
};

/* The next record; false at the end, and when r->bad. */
bool pmi1_read_record(struct reader *r, struct pmi1_record *record);
/* `key` and `value` are shorter than their maxima; `key` is NULL with PMI1_FAILED. */
void pmi1_write_record(struct writer *w, enum pmi1_record_kind kind, const char *key, const char *value);
