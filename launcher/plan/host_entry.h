/* One host as it stands in -H or at the start of a hostfile's line: [user@]name[:slots],
 * [user@][address][:slots].
 *
 * Pure text in, checked pieces out; used by hosts.c alone. Names and users may hold only what no carrier
 * (ssh, --rsh's words, a remote shell) can take for an option, a path or a piece of shell. */
#ifndef HVD_LAUNCHER_PLAN_HOST_ENTRY_H
#define HVD_LAUNCHER_PLAN_HOST_ENTRY_H

#include <stddef.h>
#include <stdint.h>

/* Some bytes of the user's text; not terminated. */
struct text {
    const char *at;
    size_t len;
};

struct host_entry {
    struct text user, name;
    uint32_t slots, max_slots; /* 0: not given */
};

/* Bytes `from` to `to` of a text. */
static inline struct text text_part(struct text t, size_t from, size_t to)
{
    return (struct text){t.at + from, to - from};
}

/* Both return NULL, or a sentence that says what is wrong. */
const char *host_entry_read(struct text t, struct host_entry *entry);
/* "slots=4" or "max_slots=8" (any case, - for _), as the words after the host in a hostfile. */
const char *host_entry_setting(struct text word, struct host_entry *entry);

#endif
