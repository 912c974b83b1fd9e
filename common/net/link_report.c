/* Messages about links: why one is lost; and for --verbose, in one line, the ways that this host's links
 * went: by interface, the hosts that it connected to (each pair has one end that connects, so all hosts'
 * lines together name every pair once). */
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "common/net/links_internal.h"

#define NAMED    8 /* hosts of an interface; the others are counted */
#define WAYS_MAX 4
#define LINE_MAX 480

/* This end's address of a link that this host made. */
static bool local_of(const struct peer *p, union net_address *local)
{
    socklen_t len = sizeof *local;
    memset(local, 0, sizeof *local);
    return p->address && p->state == PEER_READY && p->stream->fd >= 0 &&
           getsockname(p->stream->fd, &local->any, &len) == 0;
}

static int other_end(const struct peer *p, char *text)
{
    union net_address remote;
    socklen_t len = sizeof remote;
    memset(&remote, 0, sizeof remote);
    if (getpeername(p->stream->fd, &remote.any, &len) < 0)
        return -1;
    net_format(&remote, text);
    return 0;
}

int links_ends(const struct links *l, uint32_t host, char *own, char *other)
{
    const struct peer *p = l->peer[host];
    union net_address local;
    socklen_t len = sizeof local;
    memset(&local, 0, sizeof local);
    if (p->state != PEER_READY || getsockname(p->stream->fd, &local.any, &len) < 0)
        return -1;
    net_format(&local, own);
    return other_end(p, other);
}

static size_t append_text(char *line, size_t used, const char *text)
{
    int n = snprintf(line + used, LINE_MAX - used, "%s", text);
    return n > 0 && (size_t)n < LINE_MAX - used ? used + (size_t)n : used;
}

/* The links from `first` on whose local address is that one's. */
static void tell_way(const struct links *l, uint32_t first, const union net_address *from)
{
    char mine[NET_TEXT_MAX];
    uint32_t hosts = 0;
    net_format(from, mine);
    char interface[IF_NAMESIZE];
    if (!net_interface_of(from, interface, sizeof interface))
        snprintf(interface, sizeof interface, "?");
    char item[200];
    snprintf(item, sizeof item, "links of %s by %s (%s) to ",
             l->identity.kind == LINK_SESSION ? "the session" : "collectives", interface, mine);
    char line[LINE_MAX];
    size_t used = append_text(line, 0, item);
    char theirs[NET_TEXT_MAX];
    union net_address local;
    for (uint32_t i = first; i < l->self; i++) {
        const struct peer *p = l->peer[i];
        if (!local_of(p, &local) || strcmp(net_format(&local, theirs), mine) != 0 || other_end(p, theirs) < 0)
            continue;
        if (hosts++ >= NAMED)
            continue;
        snprintf(item, sizeof item, "%s%.60s (%s)", hosts > 1 ? ", " : "", l->peer[i]->name, theirs);
        used = append_text(line, used, item);
    }
    if (hosts > NAMED) {
        snprintf(item, sizeof item, " and %u others", hosts - NAMED);
        append_text(line, used, item);
    }
    log_info("%s", line);
}

void link_report(const struct links *l)
{
    char told[WAYS_MAX][NET_TEXT_MAX], text[NET_TEXT_MAX];
    union net_address local;
    size_t ways = 0, k;
    for (uint32_t i = 0; log_enabled(LOG_INFO) && i < l->self && ways < WAYS_MAX; i++) {
        if (!local_of(l->peer[i], &local))
            continue;
        net_format(&local, text);
        for (k = 0; k < ways && strcmp(told[k], text) != 0; k++)
            ;
        if (k < ways)
            continue;
        snprintf(told[ways++], NET_TEXT_MAX, "%s", text);
        tell_way(l, i, &local);
    }
}

void link_report_lost(const struct links *l, struct peer *p)
{
    const char *there = l->peer[p->host]->name;
    struct err why = ERR_INIT;
    if (p->why.code != ERR_CORRUPTED) {
        err_wrap(&p->why, "host %s", there);
        return;
    }
    err_set(&why, ERR_CORRUPTED,
            "the data link from %s to %s delivered bytes that %s did not send (checksum)", there,
            l->peer[l->self]->name, there);
    p->why = why;
}
