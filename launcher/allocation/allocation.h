/* The hosts that a batch system gave to the job inside which hvdrun was started, for when the user names
 * none.
 *
 * Asked in this order, and the first that says yes is taken: Slurm, LSF, PBS, Grid Engine. Each is a row with
 * one file of its own; what it says (variables, and for some a file that a variable names) is read whole
 * before anything comes of it. A mistake there is an error that names the variable or the file and the
 * place: a job that was given four nodes never runs on one without a message. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "launcher/plan/hosts.h"

struct allocation {
    struct host_list hosts;
    char name[80];   /* "Slurm job 123" */
    const char *rsh; /* how its hosts are reached best: an --rsh, or NULL for the built-in SSH */
};

struct scheduler {
    const char *name;
    const char *job_variable; /* the number of the job; only said */
    /* True inside an allocation of this one. */
    bool (*inside)(char *const envp[]);
    /* Its hosts; np 0: not asked for. ERR_USAGE, and *hosts empty, when they cannot be told. */
    int (*read)(struct host_list *hosts, char *const envp[], uint32_t np, struct err *e);
    /* See struct allocation; NULL: always the built-in SSH. */
    const char *(*rsh)(char *const envp[]);
};

extern const struct scheduler allocation_slurm, allocation_lsf, allocation_pbs, allocation_sge;

/* 1: *a is filled, free its hosts with hosts_free; 0: no allocation; -1 with *e. `hostname` is this host's.
 */
int allocation_find(struct allocation *a, char *const envp[], uint32_t np, const char *hostname,
                    struct err *e);
/* The number of the batch system's job that we are in, or NULL. */
const char *allocation_job(char *const envp[]);
/* "node1:4,node2:4 and 7 more hosts" */
void allocation_describe(const struct host_list *hosts, char *text, size_t size);

/* ---- for the schedulers' files ------------------------------------------------------------------------- */

/* The value of a variable, NULL when it is not set or empty. */
const char *allocation_variable(char *const envp[], const char *name);
/* A file that has one host a line for each of its slots, as those of PBS and LSF; the variable is for
 * messages. */
int allocation_read_lines(struct host_list *hosts, const char *variable, const char *path, struct err *e);
