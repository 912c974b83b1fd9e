/* How late ranks come to operations, from a sample of a job's operations. Pure.
 *
 * The lateness of a rank is the time from the arrival of the rank in the middle to its own; 0 for those
 * before the middle. All ranks of an operation wait for its last one, which has caused all their waiting. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/json.h"
#include "common/protocol/control.pb-c.h"

#define LATENESS_BUCKETS 64 /* of a rank's lateness where it was late: two for each doubling, from 1 us on */
#define LATENESS_NAME    80

struct lateness_rank {
    uint64_t seen, last, late; /* operations: sampled; it came last; it was late */
    uint64_t periods;          /* in which others have waited for it above all */
    double caused_ns;          /* waiting of others for it */
    double recent;             /* likewise, of the last minute or so */
    double period_ns;          /* likewise, of the present period */
    uint32_t bucket[LATENESS_BUCKETS];
    uint64_t worst_ns, worst_at; /* the latest arrival, and when that was */
    char worst_name[LATENESS_NAME];
};

struct lateness {
    uint32_t size, most;        /* ranks up to the highest that came; `most` is the limit */
    struct lateness_rank *rank; /* [size] */
    uint64_t operations;        /* that were sampled */
    uint64_t arrivals;          /* of ranks at them */
    uint64_t periods;           /* with operations */
    double waited_ns, recent;   /* by all ranks; of the last minute or so */
    uint64_t period_operations,
        period_waits; /* of the present one; a wait is that of one rank for one operation */
    uint64_t *order;  /* [size], scratch */
};

/* How a rank is late. A rank is late ALWAYS when others have waited for it above all in most periods, OFTEN
 * likewise in some of them, and ONCE when its worst arrival is far from all others. */
enum lateness_kind { LATENESS_NONE, LATENESS_ONCE, LATENESS_OFTEN, LATENESS_ALWAYS };

/* Of ranks below `most`. Memory is taken as they come. */
void lateness_init(struct lateness *l, uint32_t most);
void lateness_free(struct lateness *l);

/* The arrivals of `count` ranks at one operation, in any order. Arrivals that lie `doubt` ns apart or less
 * count as one: clocks of hosts are not known better. */
void lateness_add(struct lateness *l, const char *name, const uint32_t *rank, const uint64_t *at,
                  uint32_t count, uint64_t doubt);
/* A period is over, which took so long. Ranks have had `operations` in it, of which a part was sampled. */
void lateness_end_period(struct lateness *l, double seconds, double operations);

/* Of all waiting, the part that was for this rank: 0 to 1. */
double lateness_share(const struct lateness *l, uint32_t rank);
double lateness_recent_share(const struct lateness *l, uint32_t rank);
/* Of the operations in which it was late, ns: the middle of the bucket with the median, within 19 %; 900 s at
 * most. */
uint64_t lateness_median(const struct lateness *l, uint32_t rank);
enum lateness_kind lateness_kind_of(const struct lateness *l, uint32_t rank);
/* "always", "often", "once"; "no". */
const char *lateness_word(enum lateness_kind kind);

/* ---- as a message, and in words ------------------------------------------------------------------------ */

/* The message points into `l`. */
void lateness_tell(const struct lateness *l, uint32_t rank, Hvd__Lateness *out);
/* The same sum for all ranks of a list, such as those of a host: their part of all waiting, 0 to 1. */
double lateness_sum_shares(Hvd__RankStatus *const *rank, size_t count);
/* Is the rank one to name? */
bool lateness_is_known(const Hvd__Lateness *l);
/* The members of a JSON object that is open. */
void lateness_put(const Hvd__Lateness *l, struct json *w);
/* "rank 3 on h2 is often late: 82 % of all waiting is for it, ..." */
void lateness_describe(const Hvd__Lateness *l, uint32_t rank, const char *host, char *text, size_t size);
