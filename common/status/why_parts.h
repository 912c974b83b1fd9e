/* Parts of the judgement (why_judge.h) that know of one another: words for ranks, and programs without
 * libhvd. */
#pragma once

#include "common/status/why_judge.h"

#define WHY_BUSY 0.5 /* of a processor: the rank computes */

/* ---- words for ranks (why_words.c) --------------------------------------------------------------------- */

/* The accused, and the state of the first of them. */
struct why_accused {
    char names[300], does[600];
    uint32_t first;
};

void why_accuse(struct why *out, uint32_t rank);
/* The first rank that is marked; size: none is. */
uint32_t why_first(const uint8_t *ranks, uint32_t size);
/* "rank 3 on b", "ranks 2,3 on b", "ranks 0,3". */
void why_name_ranks(const struct why_job *job, const uint8_t *which, char *text, size_t size);
/* The process of the rank that is worth a look; NULL: nobody has looked. */
const Hvd__WhereProcess *why_process(const struct why_rank *r);
/* Of the rank's own process at both looks, since a process is in the kernel for a moment now and then. */
bool why_has_state(const struct why_rank *r, const char *word);
/* The state of a rank that is not where others are: "is stopped", "computes (98 % of a processor), at f
 * < g". */
void why_describe(const struct why_job *job, const struct why_rank *r, char *text, size_t size);
struct why_accused why_describe_accused(const struct why_job *job, const struct why *out);

/* Accuses the ranks in that state. true: there are some. */
bool why_judge_state(const struct why_job *job, struct why *out, const char *state, enum why_verdict verdict);

/* ---- slow ranks (why_slow.c) --------------------------------------------------------------------------- */

/* Names the reason that keeps a rank from its processor, as a verb and the rest: "runs at nice 19 and waits
 * for a processor 60 % of the time". Empty: nothing does for long. */
void why_name_scarcity(const struct why_use *use, char *text, size_t size);
/* "its host's processors are too hot ...". false, and empty: they are not. */
bool why_name_heat(const struct why_use *use, char *text, size_t size);
/* Likewise, "its GPU makes itself slower (heat)", or its processor: only a look with `why` shows that. */
bool why_name_slow_device(const struct why_use *use, char *text, size_t size);

/* ---- programs without libhvd (why_outside.c) ----------------------------------------------------------- */

/* true: there is a reason. */
bool why_judge_outside(const struct why_job *job, struct why *out);
