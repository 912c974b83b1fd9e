/* The state that the files of launcher/elastic share. */
#pragma once

#include "common/base/clock.h"
#include "launcher/elastic/blacklist.h"
#include "launcher/elastic/discovery.h"
#include "launcher/elastic/roster.h"
#include "launcher/job/core.h"
#include "launcher/job/outcome.h"

/* A membership, for the user. */
struct elastic_change {
    uint32_t number, size;
    uint32_t left, came;
    uint64_t happened; /* the first thing that made it necessary */
    uint64_t named;    /* sent to the hosts */
    uint64_t entered;  /* all ranks had; 0: they have not */
    uint64_t state;    /* likewise: all ranks that say so have the state of the training */
    uint64_t stepped;  /* likewise: and have done a step */
    char cause[300];
};

struct elastic {
    struct roster roster;
    struct blacklist blacklist;
    struct discovery discovery;
    struct host_list found;  /* hosts that are wanted, in their order */
    struct host_list list;   /* the job's: one for each session, with room */
    size_t names;            /* of list: those from here on are ours to free */
    uint64_t file_time;      /* of the hostfile, when it was read last */
    struct outcome trouble;  /* the first cause of the membership that comes next */
    struct outcome first;    /* the first cause of the whole change, when memberships were named since */
    struct outcome needless; /* ends of workers that are of no use any more: nobody reads it */
    uint64_t ready_since;    /* when the first of the workers that are ready was so */
    uint64_t happened;       /* when something was noted that needs a membership; 0: nothing */
    struct elastic_change *change;
    size_t changes, change_room;
    uint32_t wanted;  /* the most ranks, by hvdctl resize; 0: nobody has asked */
    bool finishing;   /* a rank has done its work */
    bool discovers;   /* the discovery is open */
    bool told_short;  /* the user knows that there are too few ranks */
    bool told_stay;   /* and that the hosts that are to go are still needed */
    bool told_answer; /* and that the script fails */
};

/* Of each session. */
struct elastic_host {
    uint64_t dropped; /* when it was given up while the job goes on; 0: it was not */
    uint32_t reports; /* engines that cannot reach it */
    bool unwanted;    /* its workers are to leave: it is not in the list of hosts any more */
    bool leaves;      /* likewise: the host itself asks for it */
    uint64_t taken;   /* when it was taken beside the running job; 0: it was there at the start */
    bool released;    /* its session was asked to end */
    uint32_t leased;  /* slots of its managed agent; 0: it has none */
};

extern const struct job_part part_elastic;

static inline struct elastic *elastic_of(const struct job *j)
{
    return job_state(j, &part_elastic);
}

static inline struct elastic_host *elastic_host_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_elastic, h);
}

/* The cause of a failure now: what began the change that is under way. */
static inline const struct outcome *elastic_cause(const struct elastic *s)
{
    return s->first.failed ? &s->first : &s->trouble;
}

/* Something has happened: elastic.c considers it soon. */
void elastic_note(struct job *j);
/* The present membership will not stay: since `time`, 0: now. */
static inline void elastic_happened(struct job *j, uint64_t time)
{
    struct elastic *s = elastic_of(j);
    if (!s->happened)
        s->happened = time ? time : clock_now();
}

/* The most ranks that the job may have. */
static inline uint32_t elastic_most(const struct job *j)
{
    uint32_t wanted = elastic_of(j)->wanted;
    return wanted ? wanted : j->config->max_np ? (uint32_t)j->config->max_np : UINT32_MAX;
}

/* ---- growth.c ------------------------------------------------------------------------------------------ */

int growth_open(struct job *j, struct err *e);
void growth_close(struct job *j);
void growth_free(struct job *j);
/* Begins to look for hosts, if they may change. */
void growth_start(struct job *j);
/* Starts workers and sessions for free slots; marks workers of hosts that are not wanted any more. */
void growth_fill(struct job *j);
/* A session of a host that came later can take workers. */
void growth_host_ready(struct job *j, struct host *h, const Hvd__Welcome *w);
/* So many slots were leased to the host's session, if it has a managed agent. */
void growth_note_lease(struct job *j, const struct host *h, uint32_t slots);
/* The host is asked again soon. */
void growth_pause(struct job *j, const struct host *h);
/* The host gets no new workers for a while. */
void growth_blame(struct job *j, const struct host *h);
/* The worker is not wanted any more. A rank leaves at its next commit. */
void growth_let_go(struct job *j, uint32_t worker);
/* Workers may still come by themselves: they start, or hosts may be found or become usable. */
bool growth_may_come(const struct job *j);
/* Sessions without workers that nobody wants end. */
void growth_release(struct job *j);

/* ---- wishes.c: messages of a session ------------------------------------------------------------------- */

const char *wish_resize(struct job *j, struct host *h, const Hvd__Control *m);
const char *wish_leave(struct job *j, struct host *h, const Hvd__Control *m);

/* ---- changes.c ----------------------------------------------------------------------------------------- */

/* Names the next membership. false: it cannot be named yet, since an engine does not listen. */
bool change_begin(struct job *j, bool at_once);
/* A worker has entered, or waits. */
void change_entered(struct job *j, uint32_t worker, uint32_t membership);
void change_waits(struct job *j, uint32_t worker, uint32_t left);
/* Kills a worker that the job can do without. */
void change_kill(struct job *j, uint32_t worker);
void change_report(const struct job *j, struct json *w);
