/* Hosts as the user wrote them: -H host:slots,... or a hostfile.
 *
 *   -H        by comma: host   host:4   user@host:4   10.0.0.1:2   [::1]:2   user@[fe80::1%eth0]:2
 *   hostfile  one a line, these forms and: host slots=4 max_slots=8   # comment
 *
 * A host named again adds up its slots. A host without slots is `auto`: what its session reports, the GPUs or
 * else one. A host named k times without slots has k slots, which is what node files of batch systems mean.
 * Mixing both for one host is an error, and so are two users on one host. Names are checked so that none can
 * be taken for an option or a piece of shell by what carries it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define HOSTS_NAME_MAX  255
#define HOSTS_USER_MAX  64
#define HOSTS_SLOTS_MAX 1000000
#define HOSTS_MAX       65536
#define HOSTS_FILE_MAX  (16 * 1024 * 1024)

struct host_spec {
    char *name;         /* a name or an address, without brackets, user and slots */
    char *user;         /* NULL: not given */
    uint32_t slots;     /* 0: auto, not resolved yet */
    uint32_t parts;     /* its sockets, NUMA nodes or cores, when --ppr counts them; 0: not known yet */
    uint32_t max_slots; /* 0: no limit */
    uint32_t line;      /* in the hostfile, or the position in -H; from 1 */
    uint32_t bare;      /* number of its entries without slots */
    bool here;          /* known to be this host, whatever its name looks like */
};

struct host_list {
    struct host_spec *host;
    size_t count;
};

/* A list as in -H; `from` is its name in messages: "-H/--hosts", or a variable. On -1 *list is empty;
 * otherwise hosts_free frees it. All errors are ERR_USAGE. */
int hosts_parse(struct host_list *list, const char *text, const char *from, struct err *e);
/* A hostfile's bytes; `path` is for messages. */
int hosts_parse_file(struct host_list *list, const char *bytes, size_t len, const char *path, struct err *e);
/* Reads and parses a hostfile. */
int hosts_read_file(struct host_list *list, const char *path, struct err *e);
/* The bytes of a file of at most HOSTS_FILE_MAX, which the caller frees; NULL with *e, that names it as
 * `what`. */
char *hosts_load(const char *what, const char *path, size_t *len, struct err *e);
/* This host alone, with `slots` slots (0: auto). */
int hosts_localhost(struct host_list *list, uint32_t slots, struct err *e);
void hosts_free(struct host_list *list);

/* Gives a host with `auto` slots the number that its session has reported, at most max_slots. Does nothing to
 * a host whose slots were given. */
void hosts_resolve(struct host_spec *host, uint32_t slots);
/* True for this host without a user: `here`, localhost, 127.0.0.1, ::1, or `hostname` (gethostname's; short
 * or full; may be NULL). */
bool hosts_is_local(const struct host_spec *host, const char *hostname);

/* The full name of this host, as `hostname -f` prints it; empty when it has none, or when the name is that of
 * another host. Asks the resolver, and waits. */
typedef void host_name_source(const char *hostname, char *full, size_t size);
host_name_source hosts_full_name;
/* Marks as `here` the hosts whose names are this host's full name up to one of its dots: train-0.train on
 * train-0.train.default.svc.cluster.local. Asks `ask` only when such a name is possible. */
void hosts_mark_own(struct host_list *hosts, const char *hostname, host_name_source *ask);
