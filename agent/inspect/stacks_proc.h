/* A process as /proc describes it: its state, the call it waits in, and the processes of a worker that are
 * worth a look. A shell or launcher that only waits for its children is not worth a look; its children
 * are. */
#pragma once

#include <netinet/in.h>
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
    int nice;
    unsigned policy; /* as in sched(7) */
    unsigned cpu;    /* the processor on which it has run last */
    long call;       /* the system call that it waits in; negative: none, or not known */
    uint64_t argument[2];
    char waits[384]; /* "read (pipe_read)", "futex", or empty; peers_find adds the other side */
    uint64_t swapped_kib;
    pid_t holder; /* the process that it waits for; 0: not known */
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
/* The process from which to look downwards: the worker, or the one that has called hvd_init (0: none has) if
 * it lives and the way down from the worker does not lead to it. A container's process is not below the
 * command that has started the container, or that command does not sleep until its child ends. */
pid_t inspect_subject(pid_t worker, pid_t caller);
/* The process that has all of the rank's below it: the worker, or the caller if it is not there. */
pid_t inspect_root(pid_t worker, pid_t caller);
/* The processes to look at, from `worker` downwards. Returns how many, at most `max`. */
size_t inspect_find(pid_t worker, struct inspected_process *out, size_t max);

/* ---- the other side of a wait (peers.c) ---------------------------------------------------------------- */

/* Adds to p->waits the file, the process at the other end of a pipe, the holder of a lock, or the address
 * that a connection leads to, as far as the kernel shows it, and sets p->holder. Processes are looked for
 * below this one, and this one itself. */
void peers_find(struct inspected_process *p);
/* The holder of the lock that `waiter` waits for, by the text of /proc/locks; 0: it waits for none. Pure. */
pid_t peers_lock_holder(const char *locks, pid_t waiter);
/* From a line of /proc/net/tcp or tcp6: "10.0.0.2:4000, which has not taken 1200 bytes". Empty when the line
 * is that of another inode. Pure. */
void peers_parse_tcp(const char *line, unsigned long inode, char *out, size_t size);

/* ---- connections (network.c) --------------------------------------------------------------------------- */

/* The TCP connections of processes, and how long they have been quiet, by the kernel's own account
 * (sock_diag(7), INET_DIAG_INFO). Programs that send by other ways, as shared memory or RDMA, show none. */

struct network_connection {
    uint32_t inode;
    uint32_t received_ms, sent_ms; /* since data came, since data was sent */
};

/* Those of this network namespace. */
struct network {
    struct network_connection *item; /* by inode */
    size_t count, room;
};

/* Of a process; with no connection the times are 0. */
struct network_use {
    uint32_t connections;
    uint32_t received_ms, sent_ms; /* on the connection where it is least */
};

/* Without rights or memory there are none, or not all. Does not wait. */
void network_look(struct network *n);
struct network_use network_of(const struct network *n, pid_t pid);
void network_free(struct network *n);

/* ---- NCCL's RAS service (ras.c) ------------------------------------------------------------------------ */

/* NCCL 2.24 or newer: a process of each host listens, and tells what it knows of the whole job, in lines of
 * text. */

#define RAS_PORT      28028 /* unless NCCL_RAS_ADDR names another */
#define RAS_LINES_MAX 40
#define RAS_LINE_MAX  160

struct ras_listener {
    struct sockaddr_storage address; /* of this host only */
    socklen_t size;
    unsigned long inode;
};

/* The port in the text of NCCL_RAS_ADDR; RAS_PORT when that is NULL or has none. */
uint16_t ras_port(const char *text);
/* From a line of /proc/net/tcp or tcp6: a socket of this user that listens at the port, on the loopback
 * interface or on all of them. Others, as an address of the network, are none of ours to ask. */
bool ras_parse_tcp(const char *line, uint16_t port, unsigned uid, struct ras_listener *out);
/* The process that holds the socket: the worker or one below it. 0: neither does. */
pid_t ras_holder(pid_t worker, unsigned long inode);
/* Looks for it. false: nobody listens there. */
bool ras_find(uint16_t port, struct ras_listener *out);
/* The lines of the answer that matter, printable, without those about versions. Changes the text; returns how
 * many there are in `line`, which points into it. */
size_t ras_lines(char *text, char *line[RAS_LINES_MAX]);
