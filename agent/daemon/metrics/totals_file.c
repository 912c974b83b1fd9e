/* The sums of a node on disk: see totals.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/daemon/metrics/totals.h"
#include "common/base/log.h"
#include "common/base/file.h"
#include "common/protocol/message.h"

#define FILE_MAX (64u << 20)

static void path_of(const struct totals *c, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/" SUMS_FILE, c->directory);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

/* All of it is what we write, or it is nothing. */
static bool is_ours(const Hvd__SumsFile *f)
{
    if (!f->whole || f->layout != SUMS_LAYOUT || !f->node || f->node->n_sum != SUMS || f->node->n_peer == 0 ||
        f->node->n_peer > 1 + SUM_PEERS || f->n_session > 2 * LEASES_MAX)
        return false;
    for (size_t i = 0; i < f->n_session; i++)
        if (f->session[i]->n_sum != SUMS || f->session[i]->n_peer > 1 + SUM_PEERS ||
            strlen(f->session[i]->unit) >= LEASE_UNIT_MAX)
            return false;
    return true;
}

static void take_session(struct totals *c, const Hvd__SessionSums *from, uint64_t now_ms)
{
    char name[SUM_PEER_NAME];
    struct totals_session *s = totals_new(c, from->unit, (uid_t)from->uid, from->since, now_ms);
    if (!s)
        return;
    s->over = from->over;
    s->began_ms = from->began_ms;
    memcpy(s->sum, from->sum, sizeof s->sum);
    for (size_t i = 0; i < from->n_peer; i++) {
        totals_name(name, from->peer[i]->host);
        struct totals_peer *p = totals_peer_of(s, name);
        if (!p)
            return;
        p->sent = from->peer[i]->sent;
        p->received = from->peer[i]->received;
    }
}

static int totals_read(struct totals *c, const uint8_t *bytes, size_t len, uint64_t now_ms, struct err *e)
{
    Hvd__SumsFile *f = message_unpack_sums(bytes, len, e);
    if (!f)
        return -1;
    if (!is_ours(f)) {
        message_free(f);
        return err_set(e, ERR_PROTOCOL, "it is of another version, or none of ours");
    }
    memcpy(c->sum, f->node->sum, sizeof c->sum);
    for (size_t i = 0; i < SUM_CAUSES && i < f->node->n_ended; i++) /* releases have more or fewer causes */
        c->ended[i] = f->node->ended[i];
    c->peers = f->node->n_peer - 1;
    for (size_t i = 0; i <= c->peers; i++) {
        totals_name(c->peer[i].host, f->node->peer[i]->host);
        c->peer[i].uid = (uid_t)f->node->peer[i]->uid;
        c->peer[i].sent = f->node->peer[i]->sent;
        c->peer[i].received = f->node->peer[i]->received;
    }
    for (size_t i = 0; i < f->n_session; i++)
        take_session(c, f->session[i], now_ms);
    message_free(f);
    return 0;
}

static ssize_t read_whole(int fd, uint8_t *bytes, size_t size)
{
    size_t have = 0;
    ssize_t n = 1;
    while (have < size && n > 0) {
        n = read(fd, bytes + have, size - have);
        have += n > 0 ? (size_t)n : 0;
    }
    return n < 0 ? -1 : (ssize_t)have;
}

void totals_open(struct totals *c, const char *directory, uint64_t now_ms)
{
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    *c = (struct totals){.dirty = false};
    snprintf(c->directory, sizeof c->directory, "%s", directory);
    path_of(c, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *bytes = size > 0 && size < FILE_MAX && lseek(fd, 0, SEEK_SET) == 0 ? malloc((size_t)size) : NULL;
    ssize_t n = bytes ? read_whole(fd, bytes, (size_t)size) : -1;
    if (n < 0)
        err_set(&e, ERR_SYSTEM, "the file cannot be read");
    else
        (void)totals_read(c, bytes, (size_t)n, now_ms, &e);
    if (e.code)
        log_warning("the sums of this node start from zero: %s: %s", path, e.text);
    free(bytes);
    close(fd);
    c->dirty = false;
}

void totals_close(struct totals *c)
{
    for (size_t i = 0; i < c->sessions; i++)
        free(c->session[i].peer);
    free(c->session);
    *c = (struct totals){.session = NULL};
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void fill_session(const struct totals_session *s, Hvd__SessionSums *out, Hvd__PeerTraffic *peer,
                         Hvd__PeerTraffic **list)
{
    hvd__session_sums__init(out);
    out->unit = (char *)(uintptr_t)s->unit;
    out->uid = (uint32_t)s->uid;
    out->since = s->since;
    out->over = s->over;
    out->began_ms = s->began_ms;
    out->sum = (uint64_t *)(uintptr_t)s->sum;
    out->n_sum = SUMS;
    out->peer = list;
    out->n_peer = s->peers;
    for (size_t i = 0; i < s->peers; i++) {
        hvd__peer_traffic__init(list[i] = &peer[i]);
        peer[i].host = s->peer[i].host;
        peer[i].sent = s->peer[i].sent;
        peer[i].received = s->peer[i].received;
    }
}

/* Everything as one message, packed; NULL without memory. */
static uint8_t *pack_totals(struct totals *c, size_t *len)
{
    Hvd__SumsFile f = HVD__SUMS_FILE__INIT;
    struct totals_message told;
    size_t peers = 0, used = 0, n = c->sessions;
    uint8_t *bytes = NULL;
    for (size_t i = 0; i < n; i++)
        peers += c->session[i].peers;
    Hvd__SessionSums *item = calloc(n + 1, sizeof *item), **list = calloc(n + 1, sizeof(Hvd__SessionSums *));
    Hvd__PeerTraffic *peer = calloc(peers + 1, sizeof *peer),
                     **peer_list = calloc(peers + 1, sizeof(Hvd__PeerTraffic *));
    totals_tell(c, 0, 0, &told);
    for (size_t i = 0; i <= c->peers; i++)
        told.peer[i].uid = (uint32_t)c->peer[i].uid;
    f.layout = SUMS_LAYOUT;
    f.whole = true;
    f.node = &told.sums;
    f.session = list;
    f.n_session = n;
    if (item && list && peer && peer_list) {
        for (size_t i = 0; i < n; i++) {
            fill_session(&c->session[i], list[i] = &item[i], peer + used, peer_list + used);
            used += c->session[i].peers;
        }
        *len = hvd__sums_file__get_packed_size(&f);
        bytes = malloc(*len);
    }
    if (bytes)
        hvd__sums_file__pack(&f, bytes);
    free(item);
    free(list);
    free(peer);
    free(peer_list);
    return bytes;
}

void totals_save(struct totals *c)
{
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    size_t len = 0;
    if (!c->dirty)
        return;
    path_of(c, path);
    uint8_t *bytes = pack_totals(c, &len);
    if (!bytes)
        err_sys(&e, ENOMEM, "cannot write %s", path);
    else if (file_replace(path, 0600, bytes, len, "", &e) == 0)
        c->dirty = false;
    if (e.code)
        log_error("%s", e.text);
    free(bytes);
}
