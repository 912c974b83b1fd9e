/* A process as /proc describes it: its state, the call it waits in, and the processes of a worker that are
 * worth a look. A shell or launcher that only waits for its children is not worth a look; its children
 * are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct inspected_process {
    pid_t pid;
    char name[32];
    char state;      /* as in /proc/PID/stat */
    uint64_t cpu_ms; /* user and system */
    uint64_t start;  /* tells it from a later process of the same number */
    char waits[224]; /* "read (pipe_read)", "read (wait_on_page) of /data/x", "futex", or empty */
};

/* From the text of /proc/PID/stat; `ticks` a second. False when it is no such text. */
bool inspect_parse_stat(const char *text, long ticks, struct inspected_process *out);
/* "running", "sleeping", "uninterruptible", "stopped", ... */
const char *inspect_state_word(char state);
/* From the texts of /proc/PID/syscall and /proc/PID/wchan; either may be empty. Returns true when that is a
 * wait for children, or for the signal of their end. */
bool inspect_parse_wait(const char *syscall_text, const char *wchan, char *out, size_t size);

/* Reads it from /proc; false when it is gone or a zombie. *for_children: it only waits for its children. */
bool inspect_read(pid_t pid, struct inspected_process *out, bool *for_children);
/* The processes to look at, from `worker` downwards. Returns how many, at most `max`. */
size_t inspect_find(pid_t worker, struct inspected_process *out, size_t max);
