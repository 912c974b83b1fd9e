/* Grid Engine (SGE, UGE, Open Cluster Scheduler): the file of PE_HOSTFILE has a line for each host and queue
 * of the parallel environment,
 *
 *   node1.cluster 4 all.q@node1.cluster UNDEFINED
 *
 * with the host, its slots, the queue and the processors. A host in two queues has the slots of both. A job
 * without a parallel environment has no such file: it has one slot, here, as any program outside of a batch
 * system. */
#include <stdlib.h>
#include <string.h>

#include "common/base/buf.h"
#include "launcher/allocation/allocation.h"

static bool is_inside_sge(char *const envp[])
{
    return allocation_variable(envp, "PE_HOSTFILE");
}

/* The next word of a line, without the blanks before it; *at moves behind it. */
static size_t next_word(const char **at, const char *end, const char **word)
{
    while (*at < end && strchr(" \t\r", **at))
        ++*at;
    *word = *at;
    while (*at < end && !strchr(" \t\r", **at))
        ++*at;
    return (size_t)(*at - *word);
}

/* One line as a hostfile has it, `host:slots`. */
static int put_line(struct buf *lines, const char *at, const char *end)
{
    const char *host, *slots;
    size_t host_len = next_word(&at, end, &host), slots_len = next_word(&at, end, &slots);
    if (host_len && (buf_put(lines, host, host_len) < 0 || buf_put(lines, ":", 1) < 0 ||
                     buf_put(lines, slots, slots_len) < 0))
        return -1;
    return buf_put(lines, "\n", 1);
}

static int read_hosts(struct host_list *hosts, char *const envp[], uint32_t np, struct err *e)
{
    const char *path = allocation_variable(envp, "PE_HOSTFILE");
    struct buf lines;
    size_t len;
    (void)np;
    *hosts = (struct host_list){0};
    char *bytes = hosts_load("hostfile", path, &len, e);
    if (!bytes)
        return err_wrap(e, "PE_HOSTFILE");
    buf_init(&lines, 2 * HOSTS_FILE_MAX);
    int rc = 0;
    for (const char *at = bytes; !rc && at < bytes + len;) {
        const char *newline = memchr(at, '\n', (size_t)(bytes + len - at));
        const char *end = newline ? newline : bytes + len;
        if (put_line(&lines, at, end) < 0)
            rc = err_set(e, ERR_MEMORY, "no memory for the list of hosts");
        at = end + 1;
    }
    if (!rc && hosts_parse_file(hosts, (const char *)buf_data(&lines), lines.len, path, e))
        rc = err_wrap(e, "PE_HOSTFILE");
    buf_free(&lines);
    free(bytes);
    return rc;
}

const struct scheduler allocation_sge = {"Grid Engine", "JOB_ID", is_inside_sge, read_hosts, NULL};
