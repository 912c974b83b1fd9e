/* Files that this host must have, and networks that lead nowhere: refused before a host is reached. */
#include "launcher/job/job.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "launcher/cli/config.h"
#include "launcher/job/report.h"
#include "launcher/plan/hosts.h"

static bool is_loopback_entry(const char *entry, size_t len)
{
    return (len == 2 && memcmp(entry, "lo", 2) == 0) || (len >= 4 && memcmp(entry, "127.", 4) == 0);
}

/* The list names loopback and nothing else. */
static bool is_loopback_only(const char *list)
{
    for (const char *at = list; at;) {
        size_t len = strcspn(at, ",");
        if (!is_loopback_entry(at, len))
            return false;
        at = at[len] ? at + len + 1 : NULL;
    }
    return true;
}

/* Numbers of loopback are this host too, whatever else they are called. */
static const struct host_spec *find_other_host(const struct host_list *hosts, const char *hostname)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (!hosts_is_local(&hosts->host[i], hostname) && strncmp(hosts->host[i].name, "127.", 4) != 0)
            return &hosts->host[i];
    return NULL;
}

static int check_interface(const struct config *config, const struct host_list *hosts, const char *hostname,
                           struct err *e)
{
    const struct host_spec *other = config->network_interfaces && is_loopback_only(config->network_interfaces)
                                        ? find_other_host(hosts, hostname)
                                        : NULL;
    if (!other)
        return 0;
    err_set(e, ERR_USAGE, "--network-interface %s: host %s cannot be reached over the loopback of this one",
            config->network_interfaces, other->name);
    return err_hint(e,
                    "name an interface or a network that all hosts have, as in 10.0.0.0/8, or leave it out");
}

int job_check_early(const struct config *config, const struct host_list *hosts, const char *hostname,
                    struct err *e)
{
    const char *identity = config->ssh_identity_file;
    if (identity && access(identity, R_OK) < 0)
        return err_set(e, ERR_USAGE, "-i %s: cannot read the key: %s", identity, strerror(errno));
    if (config->report && report_check(config->report, e) < 0)
        return -1;
    return check_interface(config, hosts, hostname, e);
}
