/* Hosts that no ssh reaches, such as pods of Kubernetes: `hvdagent wait` runs there and waits for hvdrun,
 * which starts `hvdagent reach` in place of ssh. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct reach_options {
    const char *key_file;
    const char *host;    /* reach */
    const char *command; /* reach */
    const char *address; /* wait: of this host; NULL: all */
    uint16_t port;
    uint32_t limit_s;  /* for the connection */
    uint32_t linger_s; /* wait: after the last command */
};

/* The words behind `reach` or `wait`. -1 with *e. */
int reach_options_read(struct reach_options *o, bool waits, int argc, char **argv, struct err *e);

/* `hvdagent reach`: runs a command on a host where `hvdagent wait` waits. Returns the exit status: the
 * command's; 255 without a connection, as ssh does. */
int reach_main(int argc, char **argv);
/* `hvdagent wait`: runs the commands that come with the key, until the job has ended. Returns the exit
 * status: 0 when the last command had it, 1 when nobody came or the last command failed. */
int wait_main(int argc, char **argv);
/* One connection of wait_main, in a process of its own, which ends with it. *known is set when the other end
 * has shown the key. Returns the exit status of the command, or REACH_STRANGER with *e. */
#define REACH_STRANGER (-1)
int wait_serve(int fd, const uint8_t *secret, _Atomic bool *known, struct err *e);
