#include "agent/tree/session_links.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/net/links.h"
#include "common/base/log.h"

#define START_MS 30000 /* from the launcher's word until all neighbours are linked */

/* A message on its way out, in frames of at most LINKS_BULK_MAX. */
struct outgoing {
    struct outgoing *next; /* while it waits for the link */
    uint8_t *bytes;
    size_t len;
    unsigned frames, left;
    struct link_send send[];
};

struct neighbour {
    struct outgoing *waiting;
    uint8_t *in; /* a message of which `filled` of `total` bytes are here, or NULL */
    size_t total, filled;
};

static void give_up(struct session_links *l, const struct err *why)
{
    if (l->state == SESSION_LINKS_BROKEN)
        return;
    bool awaited = l->state < SESSION_LINKS_LINKED;
    l->state = SESSION_LINKS_BROKEN;
    if (l->links)
        links_shutdown(l->links, why->text);
    l->failed = awaited;
    log_debug("no rendezvous across hosts from here on: %s", why->text); /* also at every job's end */
    tree_break(l->tree, why);
    if (awaited)
        l->events->failed(l->ctx, why);
}

static void on_timer(uv_timer_t *timer);

static void set_timer(struct session_links *l)
{
    int ms = l->links ? links_timeout(l->links, clock_now()) : -1;
    if (ms < 0)
        uv_timer_stop(&l->timer);
    else
        uv_timer_start(&l->timer, on_timer, (uint64_t)ms, 0);
}

static void progress_links(struct session_links *l)
{
    (void)links_progress(l->links, clock_now());
    set_timer(l);
}

static void on_timer(uv_timer_t *timer)
{
    progress_links(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    progress_links(poll->data);
}

/* ---- out ----------------------------------------------------------------------------------------------- */

static void free_outgoing(struct outgoing *o)
{
    free(o->bytes);
    free(o);
}

static void on_sent(struct link_send *send, int status)
{
    struct outgoing *o = send->ctx;
    (void)status;
    if (--o->left == 0)
        free_outgoing(o);
}

/* The frames carry the message's length as their sequence: links keep their order, so no number is needed. */
static struct outgoing *cut_up(uint8_t *bytes, size_t len)
{
    unsigned frames = (unsigned)((len + LINKS_BULK_MAX - 1) / LINKS_BULK_MAX);
    struct outgoing *o = calloc(1, sizeof *o + frames * sizeof *o->send);
    if (!o)
        return NULL;
    o->bytes = bytes;
    o->len = len;
    o->frames = o->left = frames;
    for (unsigned i = 0; i < frames; i++) {
        size_t at = (size_t)i * LINKS_BULK_MAX, rest = len - at;
        struct link_send *s = &o->send[i];
        s->head.sequence = len;
        s->head.offset = at;
        s->head.length = rest < LINKS_BULK_MAX ? (uint32_t)rest : LINKS_BULK_MAX;
        s->data = bytes + at;
        s->done = on_sent;
        s->ctx = o;
    }
    return o;
}

static void pass_on(struct session_links *l, uint32_t host, struct outgoing *o)
{
    struct err e = ERR_INIT;
    for (unsigned i = 0, frames = o->frames; i < frames; i++)
        if (links_send_bulk(l->links, host, &o->send[i], &e) < 0) {
            o->left -= frames - i; /* these are not queued */
            if (o->left == 0)
                free_outgoing(o);
            give_up(l, &e);
            return;
        }
}

static void order_links(struct session_links *l)
{
    if (l->state != SESSION_LINKS_NONE)
        return;
    struct err none = ERR_INIT;
    l->state = SESSION_LINKS_ORDERED;
    l->events->order(l->ctx);
    /* To load the module takes longer than the launcher's answer. new_links reports errors. */
    (void)auth_open(&none);
}

static void on_message(void *ctx, uint32_t host, uint8_t *bytes, size_t len)
{
    struct session_links *l = ctx;
    struct outgoing *o = cut_up(bytes, len), **at = &l->neighbour[host].waiting;
    struct err e = ERR_INIT;
    if (!o) {
        free(bytes);
        err_set(&e, ERR_MEMORY, "no memory for a message to another host");
        give_up(l, &e);
        return;
    }
    if (l->state == SESSION_LINKS_BROKEN) {
        free_outgoing(o);
        return;
    }
    if (l->links && links_ready(l->links, host)) {
        pass_on(l, host, o);
        set_timer(l);
        return;
    }
    while (*at)
        at = &(*at)->next;
    *at = o;
    order_links(l);
}

static void on_wait(void *ctx)
{
    order_links(ctx);
}

static void on_missed(void *ctx, const struct err *why)
{
    struct session_links *l = ctx;
    if (!l->failed)
        l->events->lost(l->ctx, why);
}

static const struct tree_events tree_events = {on_message, on_wait, on_missed};

/* ---- the links' events --------------------------------------------------------------------------------- */

static void on_ready(void *ctx, uint32_t host)
{
    struct session_links *l = ctx;
    struct neighbour *n = &l->neighbour[host];
    while (n->waiting && l->state != SESSION_LINKS_BROKEN) {
        struct outgoing *o = n->waiting;
        n->waiting = o->next;
        pass_on(l, host, o);
    }
}

static void on_control(void *ctx, uint32_t host, const void *data, size_t size)
{
    (void)ctx, (void)host, (void)data, (void)size; /* sessions send bulk only */
}

static void *on_place(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct session_links *l = ctx;
    struct neighbour *n = &l->neighbour[host];
    if (!n->in && head->sequence > 0 && head->sequence <= TREE_MESSAGE_MAX) {
        n->in = malloc(head->sequence);
        n->total = head->sequence;
        n->filled = 0;
    }
    bool fits = n->in && head->sequence == n->total && head->offset == n->filled &&
                head->length <= n->total - n->filled;
    return fits ? n->in + n->filled : NULL;
}

static void on_arrived(void *ctx, uint32_t host, const struct link_bulk *head)
{
    struct session_links *l = ctx;
    struct neighbour *n = &l->neighbour[host];
    struct err e = ERR_INIT;
    n->filled += head->length;
    if (!n->in || n->filled < n->total)
        return;
    uint8_t *bytes = n->in;
    n->in = NULL;
    if (tree_received(l->tree, host, bytes, n->total, &e) < 0) {
        err_wrap(&e, "host %s", l->job.host[host]->name);
        give_up(l, &e);
    }
    free(bytes);
}

static void on_lost(void *ctx, uint32_t host, const struct err *why)
{
    (void)host;
    give_up(ctx, why);
}

static const struct links_events links_events = {on_ready, on_control, on_place, on_arrived, on_lost, NULL};

/* ---- making -------------------------------------------------------------------------------------------- */

int session_links_init(struct session_links *l, uv_loop_t *loop, const struct session_links_job *job,
                       const struct session_links_events *events, void *ctx, struct err *e)
{
    *l = (struct session_links){.loop = loop, .events = events, .ctx = ctx, .job = *job};
    l->tree = tree_new(job->self, job->hosts, &tree_events, l);
    l->neighbour = calloc(job->hosts, sizeof *l->neighbour);
    if (!l->tree || !l->neighbour)
        return err_set(e, ERR_MEMORY, "no memory for links to %u hosts", job->hosts);
    return 0;
}

static struct links *new_links(struct session_links *l, struct err *e)
{
    const struct session_links_job *job = &l->job;
    const char **name = calloc(job->hosts, sizeof *name);
    bool *linked = calloc(job->hosts, sizeof *linked);
    struct links *links = NULL;
    struct links_config config = {.job = job->job,
                                  .epoch = job->epoch,
                                  .key = job->key,
                                  .auth = auth_open(e),
                                  .tls = job->encrypt ? tls_open(e) : NULL,
                                  .kind = LINK_SESSION,
                                  .self = job->self,
                                  .hosts = job->hosts,
                                  .linked = linked,
                                  .name = name,
                                  .address = (const char *const *)job->address,
                                  .addresses = job->addresses,
                                  .ports = job->ports,
                                  .heartbeat_ms = job->heartbeat_ms,
                                  .start_ms = START_MS};
    if (!name || !linked)
        err_set(e, ERR_MEMORY, "no memory for links to %u hosts", job->hosts);
    for (uint32_t i = 0; name && linked && i < job->hosts; i++) {
        name[i] = job->host[i]->name;
        linked[i] = tree_is_neighbour(job->self, i);
    }
    if (name && linked && config.auth && (config.tls || !job->encrypt))
        links = links_new(&config, &links_events, l, clock_now(), e);
    free(name);
    free(linked);
    return links;
}

static int watch_links(struct session_links *l, struct err *e)
{
    int rc = uv_poll_init(l->loop, &l->poll, links_fd(l->links));
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the links: %s", uv_strerror(rc));
    uv_timer_init(l->loop, &l->timer);
    l->poll.data = l->timer.data = l;
    l->watched = true;
    uv_poll_start(&l->poll, UV_READABLE, on_poll);
    return 0;
}

void session_links_listen(struct session_links *l)
{
    struct err e = ERR_INIT;
    if (l->state > SESSION_LINKS_ORDERED || !l->tree)
        return;
    l->links = new_links(l, &e);
    if (!l->links || watch_links(l, &e) < 0) {
        err_wrap(&e, "cannot make links to the other hosts");
        give_up(l, &e);
        return;
    }
    l->state = SESSION_LINKS_LISTENING;
    Hvd__Link link = HVD__LINK__INIT;
    link.host = l->job.self;
    link.address = l->job.address;
    link.n_address = l->job.addresses;
    link.port = links_port(l->links);
    l->events->listening(l->ctx, &link);
}

void session_links_connect(struct session_links *l, const Hvd__Links *links)
{
    struct err e = ERR_INIT;
    if (l->state != SESSION_LINKS_LISTENING)
        return;
    l->state = SESSION_LINKS_LINKED;
    for (size_t i = 0; i < links->n_link; i++) {
        const Hvd__Link *to = links->link[i];
        if (to->port > UINT16_MAX || to->host >= l->job.hosts || !tree_is_neighbour(l->job.self, to->host))
            continue;
        if (links_connect(l->links, to->host, (const char *const *)to->address, to->n_address,
                          (uint16_t)to->port, clock_now(), &e) < 0) {
            give_up(l, &e);
            return;
        }
    }
    log_debug("links to the neighbours of host %u of %u", l->job.self, l->job.hosts);
    set_timer(l);
}

void session_links_close(struct session_links *l)
{
    if (l->tree && l->job.hosts > 1) {
        struct tree_count sent = tree_sent(l->tree);
        log_debug("host %u of %u has sent %llu messages, %llu bytes for the rendezvous", l->job.self,
                  l->job.hosts, (unsigned long long)sent.messages, (unsigned long long)sent.bytes);
    }
    if (l->watched) {
        uv_close((uv_handle_t *)&l->poll, NULL);
        uv_close((uv_handle_t *)&l->timer, NULL);
    }
    l->watched = false;
    links_free(l->links);
    l->links = NULL;
    tree_free(l->tree);
    l->tree = NULL;
    for (uint32_t i = 0; l->neighbour && i < l->job.hosts; i++) {
        while (l->neighbour[i].waiting) {
            struct outgoing *o = l->neighbour[i].waiting;
            l->neighbour[i].waiting = o->next;
            free_outgoing(o);
        }
        free(l->neighbour[i].in);
    }
    free(l->neighbour);
    l->neighbour = NULL;
}
