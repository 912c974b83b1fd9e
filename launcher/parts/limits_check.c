#include "launcher/parts/limits_check.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "common/protocol/message.h"

#define OUTLETS_EACH 2 /* stdout and stderr */
#define HOST_EACH    3 /* the most that a transport needs: an ssh program's stdin, stdout and stderr */
#define OWN          16
#define KEPT_MAX     (64u << 10) /* of a Welcome, decoded */

Hvd__Welcome *limits_keep(const Hvd__Welcome *welcome)
{
    size_t room = KEPT_MAX;
    return welcome->n_limit + welcome->n_problem > 0 ? message_copy(&welcome->base, &room) : NULL;
}

/* 12345 as "12,345". */
static const char *group_digits(uint64_t n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

static uint64_t count_needed(const Hvd__Limit *l, const struct limits_need *need)
{
    uint64_t each = l->descriptors ? OUTLETS_EACH : 1;
    return need->ranks * each + (l->descriptors ? need->inputs : 0);
}

/* By how much the limit is too low; 0: it suffices. The numbers of a host may be wrong. */
static uint64_t count_lack(const Hvd__Limit *l, const struct limits_need *need)
{
    uint64_t left = l->used < l->limit ? l->limit - l->used : 0, wanted = count_needed(l, need);
    return wanted > left ? wanted - left : 0;
}

int limits_check(Hvd__Limit *const *limit, size_t count, const struct limits_need *need, struct err *e)
{
    const Hvd__Limit *worst = NULL;
    char wanted[32], most[32], used[32];
    for (size_t i = 0; i < count; i++)
        if (count_lack(limit[i], need) > (worst ? count_lack(worst, need) : 0))
            worst = limit[i];
    if (!worst)
        return 0;
    if (worst->descriptors)
        err_set(e, ERR_HOST, "%u ranks need about %s descriptors, but the limit is %s (%.200s)", need->ranks,
                group_digits(count_needed(worst, need) + worst->used, wanted),
                group_digits(worst->limit, most), worst->name);
    else
        err_set(e, ERR_HOST,
                "%u ranks need as many processes, but %s are in use and the limit is %s (%.200s)",
                need->ranks, group_digits(worst->used, used), group_digits(worst->limit, most), worst->name);
    return err_hint(e, "%.300s", worst->hint);
}

int limits_check_own(uint64_t own, uint64_t used, uint64_t hosts, uint64_t files, struct err *e)
{
    char wanted[32], most[32], written[32], reached[32];
    uint64_t need = used + hosts * HOST_EACH + files + OWN;
    if (need <= own)
        return 0;
    err_set(e, ERR_SYSTEM,
            "%s hosts and %s output files need about %s descriptors here, but the limit is %s "
            "(RLIMIT_NOFILE, ulimit -Hn)",
            group_digits(hosts, reached), group_digits(files, written), group_digits(need, wanted),
            group_digits(own, most));
    return err_hint(e, "raise the hard limit (ulimit -Hn, limits.conf or LimitNOFILE=)%s",
                    files ? ", or leave --output-filename out" : "");
}

int limits_own(uint64_t hosts, uint64_t files, struct err *e)
{
    struct rlimit limit;
    uint64_t used = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d))
        used++;
    if (d)
        closedir(d);
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_max == RLIM_INFINITY)
        return 0;
    return limits_check_own(limit.rlim_max, used, hosts, files, e);
}
