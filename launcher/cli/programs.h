/* The programs of a job: one, or several behind ':' on the command line, as mpirun has it:
 *
 *   hvdrun -H a:2,b:2 -np 1 -x A=1 ./a arg : -np 3 --wdir /d ./b
 *
 * Ranks are those of the first program first, and all are one job. -np, -x, --unset, --wdir and -H
 * are of the program that they stand before; what a variable or the configuration file says
 * of them is true of all; every other option stands before the first program and is of the job. ':' is a word
 * of its own. Behind `--` it is the command's, as all the rest of the line is. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/options/options.h"
#include "launcher/plan/plan.h"

struct config;
struct host_list;

struct program {
    char **command;                        /* NULL at the end; the words are those of argv */
    uint32_t first, ranks;                 /* of the only one: 0, and 0 when -np was not given */
    struct option_list set_env, unset_env; /* of the first one: the configuration's own */
    const char *wdir;                      /* or NULL */
    const char *hosts;                     /* its own -H; or NULL */
};

struct programs {
    struct program *item;
    size_t count;           /* 0 after --help and the like */
    struct plan_part *part; /* the hosts of each program; NULL: every program may run on all hosts */
};

/* Index of the ':' that ends the program of which the options begin at argv[from]; argc when there is none.
 */
int programs_end(int argc, char *const argv[], int from);
/* Fills config->programs, once the options of the first are in *config: its command begins at `operand` and
 * ends at `end`. config->num_proc becomes the number of all ranks. -1 with *e (ERR_USAGE); programs_free is
 * due anyway. */
int programs_parse(struct config *config, int argc, char *const argv[], char *const envp[], int operand,
                   int end, struct err *e);
/* The one that a rank runs. */
size_t programs_of(const struct programs *p, uint32_t rank);
/* Members for --dry-run=json and --report: "command", of the first, and "programs" of each its first rank,
 * the number of ranks (null: not known yet), directory and command. */
void programs_put(const struct programs *p, struct json *to);
/* Is this word of argv one of a program's command? */
bool programs_have_word(const struct programs *p, const char *word);
void programs_free(struct programs *p);

/* ---- -H of each program -------------------------------------------------------------------------------- */

/* As mpirun has it:
 *
 *   hvdrun -np 1 -H a ./x : -np 2 -H b:2 ./y
 *
 * The hosts of the job are those of all programs; a program without -H may run on any of them. Each program
 * takes the slots that its own -H gives it, and all together no more of a host than the largest number that
 * was said of it. If a hostfile or a batch system names the hosts of the job, -H chooses among them. */

/* A program behind the first ':' has hosts of its own. */
bool program_hosts_any(const struct programs *p);
/* Adds the programs' hosts to those that are known already, or finds them there when these are `all`, and
 * notes in config->programs which program may run where. ERR_USAGE. */
int program_hosts_join(struct config *config, struct host_list *hosts, bool all, struct err *e);
