/* A report that a host's whole subtree has a tensor, with its elements where they travel along: how it is
 * written and read (pure). readiness.h has the format. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/agree/contributions.h"
#include "collectives/engine/agree/host_tree.h"
#include "collectives/engine/agree/tensor_wire.h"

#define REPORT_MAX (TENSOR_WIRE_MAX + 4 + 4 + CONTRIBUTIONS_MAX)

struct readiness_host { /* for sentences, and for who has a broadcast's root */
    const char *name;
    uint32_t first_rank, ranks; /* in the set */
    const uint32_t *rank;       /* [ranks], in the set, ascending; NULL: those from first_rank on */
    uint32_t shift;             /* the first one is first_rank + shift in the job */
    bool gaps;                  /* there the others do not all follow it */
};

/* The state for reading and writing reports. */
struct report_context {
    struct host_tree tree;
    struct readiness_host *host; /* [hosts] */
    struct tensor_cache *cache;
    uint32_t data_bytes; /* of a tensor that may carry its elements */
    struct partial_shape shape;
};

struct report {
    uint32_t witness; /* a host that says so */
    bool direct;      /* it goes to both hosts of a pair: readiness.h */
    struct tensor_desc desc;
    char error[TENSOR_ERROR_MAX + 1];
    size_t bytes;         /* of a contribution; 0: the tensor does not carry its elements */
    uint32_t parts;       /* contributions that follow */
    const uint8_t *first; /* each: host 4, elements; where the report was read */
};

/* Does `host` add elements to the tensor? */
bool report_contributes(const struct report_context *c, const struct tensor_op *op, uint32_t host);
/* Do two hosts need no list for it, once it has a number? */
bool report_may_be_direct(const struct report_context *c, const struct tensor_op *op);
/* Of the child `from`, or a direct one of the parent. -1 with *e: malformed. */
int report_read(const struct report_context *c, struct reader *in, uint32_t from, struct report *said,
                struct err *e);
/* Of this host's subtree. `parts`: its contributions as in contributions.h, NULL: none. */
void readiness_report_write(const struct report_context *c, struct writer *w, const struct tensor_desc *desc,
                            const char *error, uint32_t witness, const uint8_t *parts);
/* This host's direct report to the other one of two hosts; the tensor has a number. */
void report_write_direct(const struct report_context *c, struct writer *w, const struct report *said);
