/* LSF tells the same in three ways, and the first that is there is taken:
 *
 *   LSB_DJOB_HOSTFILE   a file with a host on a line for each slot
 *   LSB_MCPU_HOSTS      hostA 4 hostB 4
 *   LSB_HOSTS           hostA hostA hostB hostB; left out by LSF when it would be too long */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/allocation/allocation.h"

#define FILE_VARIABLE  "LSB_DJOB_HOSTFILE"
#define COUNT_VARIABLE "LSB_MCPU_HOSTS"
#define NAMES_VARIABLE "LSB_HOSTS"

static bool is_inside_lsf(char *const envp[])
{
    return allocation_variable(envp, "LSB_JOBID") &&
           (allocation_variable(envp, FILE_VARIABLE) || allocation_variable(envp, COUNT_VARIABLE) ||
            allocation_variable(envp, NAMES_VARIABLE));
}

/* Words by blanks become a list as -H has it: every word with slots 1, or a word and the number behind it. */
static int read_words(struct host_list *hosts, const char *text, const char *from, bool counted,
                      struct err *e)
{
    size_t words = 0, used = 0, size = strlen(text) * 3 + 1; /* "a" becomes ",a:1" at most */
    char *list = malloc(size + 1);
    if (!list)
        return err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    list[0] = '\0';
    for (const char *at = text + strspn(text, " \t\n"); *at; words++) {
        size_t len = strcspn(at, " \t\n");
        const char *before = counted && words % 2 ? ":" : words ? "," : "";
        used += (size_t)snprintf(list + used, size + 1 - used, "%s%.*s%s", before, (int)len, at,
                                 counted ? "" : ":1");
        at += len;
        at += strspn(at, " \t\n");
    }
    int rc = counted && words % 2 ? err_set(e, ERR_USAGE, "%s: the slots of the last host are missing", from)
                                  : hosts_parse(hosts, list, from, e);
    free(list);
    return rc;
}

static int read_hosts(struct host_list *hosts, char *const envp[], uint32_t np, struct err *e)
{
    const char *path = allocation_variable(envp, FILE_VARIABLE);
    const char *counts = allocation_variable(envp, COUNT_VARIABLE);
    (void)np;
    *hosts = (struct host_list){0};
    if (path)
        return allocation_read_lines(hosts, FILE_VARIABLE, path, e);
    if (counts)
        return read_words(hosts, counts, COUNT_VARIABLE, true, e);
    return read_words(hosts, allocation_variable(envp, NAMES_VARIABLE), NAMES_VARIABLE, false, e);
}

const struct scheduler allocation_lsf = {"LSF", "LSB_JOBID", is_inside_lsf, read_hosts, NULL};
