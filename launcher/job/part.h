/* A part of a job: a feature that owns its state, and the hooks at which the job calls it.
 *
 * launcher/parts/parts.h lists the parts. Hooks are called in the order of the list. A hook that is NULL
 * means that the part has nothing to do there. To remove a feature, remove its file and its row. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/protocol/control.pb-c.h"

struct job;
struct host;

/* A message that a part takes. `take` returns NULL, or half a sentence that says why the message is refused,
 * or job_not_mine. */
struct job_message {
    int body;        /* HVD__CONTROL__BODY_... */
    bool of_workers; /* only a host that was given workers may send it */
    const char *(*take)(struct job *j, struct host *h, const Hvd__Control *m);
};

extern const char job_not_mine[];

struct job_part {
    size_t state_size, host_state_size; /* bytes of job_state() and job_host_state(); they begin as 0 */
    const struct job_message *message;  /* ended by a row without `take`; NULL: none */

    int (*open)(struct job *j, struct err *e); /* before the first host is reached */
    void (*start)(struct job *j);              /* the first hosts are started */
    void (*host_ready)(struct job *j, struct host *h, const Hvd__Welcome *w); /* Welcome came */
    int (*placed)(struct job *j, struct err *e);                              /* the plan is made */
    bool (*prepare)(struct job *j); /* hosts get what workers need; true: job_prepared() follows */
    bool (*waits_for)(const struct job *j, const struct host *h); /* is that host still being prepared? */
    int (*spawn)(struct job *j, Hvd__Spawn *s, struct err *e); /* fills its fields of Spawn, for all hosts */
    void (*rank_started)(struct job *j, uint32_t rank);
    void (*started)(struct job *j);                        /* every rank runs */
    void (*rank_ended)(struct job *j, uint32_t rank);      /* Exited came; rank_state says how */
    void (*rank_gone)(struct job *j, uint32_t rank);       /* it has ended, or its host is lost */
    void (*engine_listens)(struct job *j, struct host *h); /* links_of_engine has it */
    void (*writable)(struct job *j, struct host *h);       /* the host's transport takes bytes again */
    void (*ending)(struct job *j);                         /* Teardown is about to be sent */
    void (*host_ended)(struct job *j, struct host *h, const Hvd__Ended *m);
    void (*host_closed)(struct job *j, struct host *h);
    void (*done)(struct job *j);      /* all is over; closes handles, and the loop runs once more */
    void (*say)(const struct job *j); /* to the user, after the report of the job */
    void (*report)(const struct job *j, struct json *w); /* members of --report */
    void (*report_rank)(const struct job *j, uint32_t rank, struct json *w);
    void (*free)(struct job *j); /* frees the memory to which the state points */
};

struct job_parts {
    const struct job_part *const *part; /* ended by NULL */
    void **state, **host_state;         /* by place in the table */
    uint32_t preparing;                 /* parts whose `prepare` is under way */
    bool prepares;                      /* a part has begun to prepare the hosts */
};

/* Takes the table, ended by NULL, and makes the states. -1: no memory. */
int job_parts_init(struct job *j, const struct job_part *const *table);
/* The state of a part. */
void *job_state(const struct job *j, const struct job_part *part);
void job_parts_free(struct job *j);
/* Makes the states of j->host_count hosts and calls `open` of every part. */
int job_parts_open(struct job *j, struct err *e);
/* The state of a part for one host; after job_parts_open. */
void *job_host_state(const struct job *j, const struct job_part *part, const struct host *h);
/* Calls `prepare` of every part. Posts JOB_EV_PREPARED at once when no part prepares. */
void job_prepare(struct job *j);
/* Posts JOB_EV_PREPARED when this was the last part that prepared. */
void job_prepared(struct job *j);
/* Does a part still prepare this host? */
bool job_is_preparing(const struct job *j, const struct host *h);

/* Calls a hook without a result of every part that has it. */
#define JOB_PARTS_CALL(j, hook, ...)                                                                         \
    do {                                                                                                     \
        for (const struct job_part *const *p_ = (j)->parts.part; p_ && *p_; p_++)                            \
            if ((*p_)->hook)                                                                                 \
                (*p_)->hook(__VA_ARGS__);                                                                    \
    } while (0)

/* Calls a hook until a part fails; -1 then, else 0. */
#define JOB_PARTS_TRY(j, hook, ...)                                                                          \
    ({                                                                                                       \
        int rc_ = 0;                                                                                         \
        for (const struct job_part *const *p_ = (j)->parts.part; *p_ && rc_ == 0; p_++)                      \
            rc_ = (*p_)->hook ? (*p_)->hook(__VA_ARGS__) : 0;                                                \
        rc_;                                                                                                 \
    })
