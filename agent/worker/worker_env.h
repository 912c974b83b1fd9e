/* The environment of a worker: what the launcher sent, and what says which rank it is. Pure.
 *
 * All that is the same for every rank of this host is put together once; a rank costs a dozen short numbers.
 */
#pragma once

#include "agent/rendezvous/rendezvous.h"
#include "agent/worker/endpoints.h"
#include "agent/gpu/gpu.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

struct worker_env_job {
    const Hvd__Spawn *spawn;
    const char *job;
    const char *hostname; /* as the user gave it */
    const char *socket;   /* path of the worker socket */
    const char *token;    /* hex */
    const struct rendezvous_values *rendezvous;
    uint32_t gpus;             /* of this host, to be handed out; 0: nothing is said of them */
    const char *visible_gpus;  /* the session's own list; NULL: it has none */
    size_t program;            /* of the job's: whose environment */
    const char *wdir;          /* of that program here */
    const char *preload_dir;   /* of copied files; NULL or empty: none were copied */
    bool gpus_are_leased;      /* none but those of the list, whatever the user says */
    const char *gpu_uuids;     /* by number; lists name GPUs by these alone. NULL: as they are */
    const char *mps, *mps_log; /* directories of MPS; NULL: nothing is said of it */
    const char *directory;     /* the job's own, for files of ranks */
};

struct worker_env {
    char **envp;        /* all of it, NULL at the end */
    char *shared, *own; /* memory of the strings that are ours; the token's is secret */
    const char *token, *directory;
    char *first_ranks, *program_ranks; /* NAME=a list, by program */
    struct endpoints endpoints;
    uint32_t workers; /* of this host */
    unsigned contracts;
    size_t own_at; /* index in envp of the first string of a rank's own */
    uint32_t gpus;
    Hvd__Binding__Gpu gpu_bind;
    const char *gpu_list;                            /* NULL: all */
    char *gpu_named;                                 /* the same, when it was made here */
    char gpu[32 + GPU_SET_MAX * (GPU_UUID_MAX + 1)]; /* CUDA_VISIBLE_DEVICES=... */
};

/* Names in the launcher's environment that are ours are left out; strings of `job` must outlive *w. */
int worker_env_init(struct worker_env *w, const struct worker_env_job *job, struct err *e);
void worker_env_free(struct worker_env *w);
/* Valid until the next call. */
char **worker_env_of(struct worker_env *w, const Hvd__Worker *worker);
/* Without any rank's own, and without the token; valid until the next call. */
char **worker_env_base(struct worker_env *w);
/* In the user's environment of the job's i-th program; NULL: not there. */
const char *worker_env_given(const Hvd__Spawn *s, size_t i, const char *name);
/* In worker_env_base. */
const char *worker_env_get(const struct worker_env *w, const char *name);
