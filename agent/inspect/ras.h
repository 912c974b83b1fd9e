/* The RAS service of NCCL (2.24 or newer): a process of each host listens, and tells what it knows of the
 * whole job, in lines of text. Here are the pure parts, and the search for the process. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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
