/* --send-agent: hvdagent and its modules for hosts that have none, and the script that takes them there.
 *
 *      hvdrun                                       a shell on the host
 *      the script, `script_len` bytes           ->
 *                                               <-  "hvd-send JOB have": an agent of this version runs now
 *                                               or  "hvd-send JOB want"
 *      all files, one after the other           ->
 *                                               <-  "hvd-send JOB have", or an error and the end
 *      Hello, and so on: the control channel
 *
 * The script is read and executed by `command`, so nothing there need be installed but a POSIX shell, head,
 * tail, mktemp, df and sha256sum. hvdrun says nothing after what was asked for until it is answered: programs
 * there may read ahead. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum sent_agent_way { SEND_AGENT_NO, SEND_AGENT_JOB, SEND_AGENT_CACHE }; /* the words of --send-agent */

#define SENT_AGENT_MAX (64u << 20) /* bytes of all files */

struct sent_agent_want {
    enum sent_agent_way way;
    const char *job;         /* its name */
    const char *program_dir; /* hvdrun's: where the files are, and where hosts look for hvdagent first */
    const char *agent_path;  /* --agent-path, or NULL */
    char *const *arguments;  /* of hvdagent: words without a special character, ended by NULL */
};

struct sent_agent {
    char *script;
    size_t script_len;
    uint8_t *bytes; /* the files */
    size_t len;
    char command[160];       /* the shell command line */
    char have[96], want[96]; /* the script's answers, each a line */
};

/* Reads the files and writes the script. -1 with *e; nothing is left then. */
int sent_agent_load(struct sent_agent *a, const struct sent_agent_want *want, struct err *e);
void sent_agent_free(struct sent_agent *a);
/* Writes the command line that sweeps a job on a host to which its agent may have been sent. If the agent is
 * not there any more, it has removed its directory, which it does last: there is nothing to sweep. */
int sent_agent_sweep_command(const struct sent_agent_want *want, bool now, char *out, size_t size,
                             struct err *e);

/* ---- the conversation ---------------------------------------------------------------------------------- */

/* hvdrun's side of the conversation above. No I/O: the host (host.c) writes what
 * is to be written and shows what arrives. */

struct host_sending {
    const uint8_t *bytes; /* on their way */
    size_t left;
    bool files;     /* they were asked for */
    uint64_t since; /* when they were asked for; host.c sets it */
    size_t filled;  /* of the line that arrives; the rest of a long one is dropped, it is no answer */
    char line[96];
};

enum sending_answer { SENDING_NONE, SENDING_WANT, SENDING_HAVE };

/* The script is to be written. */
void host_sending_begin(struct host_sending *s, const struct sent_agent *a);
/* Takes bytes up to the end of an answer; *used of them. SENDING_WANT: the files are to be written.
 * SENDING_HAVE: what follows is the agent's. */
enum sending_answer host_sending_receive(struct host_sending *s, const struct sent_agent *a,
                                         const uint8_t *bytes, size_t len, size_t *used);
void host_sending_written(struct host_sending *s, size_t taken);
