/* Where the data links of a job's hosts can be reached: collected from the hosts, told to all of them when
 * the last one listens. There are two such sets: the engines' links (collectives) and the sessions'
 * (rendezvous). */
#ifndef HVD_LAUNCHER_JOB_JOB_LINKS_H
#define HVD_LAUNCHER_JOB_JOB_LINKS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

struct job;
struct host;

struct job_links {
    Hvd__Link **link; /* by index in the plan; NULL until that one listens */
    uint32_t count;
    bool ordered; /* sessions: all were told to listen */
    bool lost;    /* sessions: they broke, and the user knows why */
};

/* Memory for the plan's hosts. */
int job_links_init(struct job *j, struct job_links *links, struct err *e);
void job_links_free(struct job *j, struct job_links *links);
/* A host's engine listens. */
void job_links_engine(struct job *j, struct host *h, const Hvd__Link *m);
/* A session needs links to the others: all are told to listen, once. */
void job_links_order(struct job *j);
/* A session listens. NULL, or why it cannot. */
const char *job_links_session(struct job *j, struct host *h, const Hvd__Link *m);
/* A session's links broke while its ranks needed them. The first one's reason is told; the others follow from
 * it, for a host without links takes its neighbours' as well. Likewise. */
const char *job_links_lost(struct job *j, struct host *h, const Hvd__Notice *m);

#endif
