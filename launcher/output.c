#include "launcher/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/ranks.h"
#include "launcher/output_files.h"
#include "launcher/sink.h"

#define POOL       (8u << 20)
#define WINDOW_MIN (4u << 10)
#define WINDOW_MAX (256u << 10)
#define COLORS     12u /* red to cyan, then the bright ones */

/* A frame in a stream's queue: this, then its bytes. */
struct record {
    uint32_t length;
    uint8_t flags;
};

struct stream_state {
    struct stream_state *next; /* in the sink's list of those that have something */
    struct buf queue;          /* records */
    uint32_t rank;
    uint32_t credit; /* what the session may still send */
    uint8_t stream;
    bool listed, at_line_start;
    bool hidden;   /* by --show-rank */
    bool end_came; /* the frame that says: all that its worker wrote has come, */
    bool ended;    /* and everything before it was shown */
    uint64_t bytes;
};

struct lane { /* one sink and the streams that lead to it */
    struct sink sink;
    struct stream_state *first, **last;
    struct stream_state *owner; /* of the line that is begun; NULL between lines */
    bool owner_may_yield;       /* that line was left unfinished by its worker */
    bool told;                  /* that it broke */
    bool colored;
};

struct output {
    const struct config *config;
    const struct plan *plan;
    const char *const *host_names;
    const struct output_events *events;
    void *ctx;
    struct lane lane[2];
    struct lane *of_stream[3];
    struct output_files *files;
    struct stream_state *streams; /* two per rank */
    struct tail *last_words;      /* of each rank's stderr */
};

uint32_t output_window(uint32_t size)
{
    uint32_t share = POOL / (2 * (size ? size : 1));
    return share < WINDOW_MIN ? WINDOW_MIN : share > WINDOW_MAX ? WINDOW_MAX : share;
}

static struct stream_state *find(const struct output *o, uint32_t rank, enum frame_stream stream)
{
    return &o->streams[2 * (size_t)rank + (stream == STREAM_STDERR)];
}

static void on_progress(void *ctx);

static bool same_file(int a, int b)
{
    struct stat sa, sb;
    return fstat(a, &sa) == 0 && fstat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

int output_check_shown(const char *list, uint32_t size, struct err *e)
{
    uint32_t highest;
    if (!list)
        return 0;
    if (ranks_check(list, &highest, e) < 0)
        return err_wrap(e, "--show-rank");
    if (size && highest >= size)
        return err_set(e, ERR_USAGE, "--show-rank %s: there are only ranks 0 to %u", list, size - 1);
    return 0;
}

static bool wants_color(const struct config *config, int fd)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (config->tag == CONFIG_TAG_NONE || config->color == CONFIG_COLOR_NEVER)
        return false;
    return config->color == CONFIG_COLOR_ALWAYS ||
           (isatty(fd) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0));
}

struct output *output_new(uv_loop_t *loop, const struct config *config, const struct plan *plan,
                          const char *const *host_names, bool append, const struct output_events *events,
                          void *ctx, struct err *e)
{
    struct output *o = calloc(1, sizeof *o);
    struct stream_state *streams = calloc(2 * (size_t)plan->size, sizeof *streams);
    struct tail *last_words = calloc(plan->size, sizeof *last_words);
    if (!o || !streams || !last_words) {
        free(o);
        free(streams);
        free(last_words);
        err_set(e, ERR_MEMORY, "no memory for the output of %u ranks", plan->size);
        return NULL;
    }
    *o = (struct output){.config = config,
                         .plan = plan,
                         .host_names = host_names,
                         .events = events,
                         .ctx = ctx,
                         .streams = streams,
                         .last_words = last_words};
    for (uint32_t i = 0; i < 2 * plan->size; i++) {
        streams[i].rank = i / 2;
        streams[i].stream = i % 2 ? STREAM_STDERR : STREAM_STDOUT;
        streams[i].credit = output_window(plan->size);
        streams[i].at_line_start = true;
        streams[i].hidden = config->show_rank && !ranks_listed(config->show_rank, i / 2);
        buf_init(&streams[i].queue, SIZE_MAX / 2);
    }
    for (int i = 0; i < 2; i++) {
        sink_init(&o->lane[i].sink, loop, i + 1, on_progress, o);
        o->lane[i].last = &o->lane[i].first;
        o->lane[i].colored = wants_color(config, i + 1);
    }
    /* Both on one terminal or file: one lane, or lines of stderr would tear those of stdout. */
    o->of_stream[STREAM_STDOUT] = &o->lane[0];
    o->of_stream[STREAM_STDERR] = same_file(1, 2) ? &o->lane[0] : &o->lane[1];
    if (config->output_filename &&
        !(o->files = output_files_new(config->output_filename, plan, host_names, append, e))) {
        output_free(o);
        return NULL;
    }
    return o;
}

void output_close(struct output *o)
{
    for (int i = 0; o && i < 2; i++)
        sink_close(&o->lane[i].sink);
}

void output_free(struct output *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; i < 2 * o->plan->size; i++)
        buf_free(&o->streams[i].queue);
    for (uint32_t i = 0; i < o->plan->size; i++)
        tail_free(&o->last_words[i]);
    output_files_free(o->files);
    free(o->last_words);
    free(o->streams);
    free(o);
}

/* ---- one line's beginning ------------------------------------------------------------------------------ */

static size_t format_prefix(const struct output *o, const struct stream_state *s, char *out, size_t size)
{
    size_t len = 0;
    if (o->config->prefix_timestamp) {
        time_t now = time(NULL);
        struct tm tm;
        localtime_r(&now, &tm);
        len = strftime(out, size, "%a %b %e %H:%M:%S %Y", &tm);
    }
    const char *name = s->stream == STREAM_STDERR ? "stderr" : "stdout";
    char color[16] = "", plain[8] = "";
    int n = 0;
    if (o->of_stream[s->stream]->colored) {
        uint32_t i = s->rank % COLORS;
        snprintf(color, sizeof color, "\033[%um", i < COLORS / 2 ? 31 + i : 91 + i - COLORS / 2);
        snprintf(plain, sizeof plain, "\033[0m");
    }
    if (o->config->tag == CONFIG_TAG_RANK)
        n = snprintf(out + len, size - len, "%s[%u]<%s>:%s", color, s->rank, name, plain);
    else if (o->config->tag == CONFIG_TAG_HOST)
        n = snprintf(out + len, size - len, "%s[%u@%s]<%s>:%s", color, s->rank,
                     o->host_names[o->plan->rank[s->rank].host], name, plain);
    else if (len > 0)
        n = snprintf(out + len, size - len, ": ");
    return len + (n > 0 && (size_t)n < size - len ? (size_t)n : 0);
}

static void put_lines(struct output *o, struct lane *lane, struct stream_state *s, const uint8_t *bytes,
                      size_t len)
{
    bool plain = o->config->tag == CONFIG_TAG_NONE && !o->config->prefix_timestamp;
    char prefix[512];
    size_t prefix_len = plain ? 0 : format_prefix(o, s, prefix, sizeof prefix);
    while (len > 0) {
        size_t piece = 0;
        while (!plain && piece < len && bytes[piece] != '\n' && bytes[piece] != '\r')
            piece++;
        piece = plain ? len : piece < len ? piece + 1 : piece;
        if (s->at_line_start)
            sink_put(&lane->sink, prefix, prefix_len);
        sink_put(&lane->sink, bytes, piece);
        s->at_line_start = bytes[piece - 1] == '\n' || bytes[piece - 1] == '\r';
        bytes += piece;
        len -= piece;
    }
}

/* ---- from queue to sink -------------------------------------------------------------------------------- */

/* Whose record is shown next; NULL: none can be, now. */
static struct stream_state *choose(struct lane *lane)
{
    struct stream_state *owner = lane->owner;
    if (owner && owner->queue.len > 0)
        return owner;
    if (owner && !owner->ended && !lane->owner_may_yield)
        return NULL;
    return lane->first;
}

static void unlist(struct lane *lane, struct stream_state *s)
{
    struct stream_state **p = &lane->first;
    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    if (!s->next)
        lane->last = p;
    s->next = NULL;
    s->listed = false;
}

static void enlist(struct lane *lane, struct stream_state *s)
{
    if (s->listed)
        return;
    s->listed = true;
    *lane->last = s;
    lane->last = &s->next;
}

/* Bytes may still follow: of a process that the worker left behind. */
static void end_stream(struct output *o, struct stream_state *s)
{
    if (s->ended)
        return;
    s->ended = true;
    if (find(o, s->rank, STREAM_STDOUT)->ended && find(o, s->rank, STREAM_STDERR)->ended)
        o->events->rank_ended(o->ctx, s->rank);
}

static void show_bytes(struct output *o, struct lane *lane, struct stream_state *s, const uint8_t *bytes,
                       const struct record *r)
{
    if (lane->owner && lane->owner != s) {
        sink_put(&lane->sink, "\n", 1);
        lane->owner->at_line_start = true;
    }
    put_lines(o, lane, s, bytes, r->length);
    lane->owner = s->at_line_start ? NULL : s;
    lane->owner_may_yield = r->flags & FRAME_FLAG_UNFINISHED;
}

static void show_record(struct output *o, struct lane *lane, struct stream_state *s)
{
    struct record r;
    memcpy(&r, buf_data(&s->queue), sizeof r);
    const uint8_t *bytes = buf_data(&s->queue) + sizeof r;
    if (r.length > 0 && !s->hidden)
        show_bytes(o, lane, s, bytes, &r);
    if (o->files)
        output_files_write(o->files, s->rank, s->stream, bytes, r.length);
    s->bytes += r.length;
    buf_consume(&s->queue, sizeof r + r.length);
    unlist(lane, s);
    if (s->queue.len > 0)
        enlist(lane, s);
    if (r.flags & FRAME_FLAG_EOF) {
        end_stream(o, s);
    } else if (r.length > 0) {
        s->credit += r.length;
        o->events->consumed(o->ctx, s->rank, s->stream, r.length);
    }
}

static void pump(struct output *o, struct lane *lane)
{
    struct stream_state *s;
    do {
        while (sink_wants(&lane->sink) && (s = choose(lane)))
            show_record(o, lane, s);
        sink_flush(&lane->sink);
        if (lane->sink.broken && !lane->told) {
            lane->told = true;
            o->events->broken(o->ctx, lane->sink.fd, lane->sink.broken);
        }
    } while (sink_wants(&lane->sink) && choose(lane));
}

static void on_progress(void *ctx)
{
    struct output *o = ctx;
    pump(o, &o->lane[0]);
    pump(o, &o->lane[1]);
    if (output_is_idle(o))
        o->events->drained(o->ctx);
}

/* ---- from outside -------------------------------------------------------------------------------------- */

static int queue_record(struct output *o, struct stream_state *s, const struct record *r,
                        const uint8_t *payload, struct err *e)
{
    if (!buf_reserve(&s->queue, sizeof *r + r->length))
        return err_set(e, ERR_MEMORY, "no memory for the output of rank %u", s->rank);
    (void)buf_put(&s->queue, r, sizeof *r);
    (void)buf_put(&s->queue, payload, r->length);
    enlist(o->of_stream[s->stream], s);
    return 0;
}

int output_frame(struct output *o, const struct frame *f, struct err *e)
{
    if (f->rank >= o->plan->size || f->stream == STREAM_STDIN)
        return err_set(e, ERR_PROTOCOL, "output of rank %u, stream %u, which does not exist", f->rank,
                       (unsigned)f->stream);
    struct stream_state *s = find(o, f->rank, f->stream);
    if (f->length > s->credit)
        return err_set(e, ERR_PROTOCOL, "%u bytes of rank %u, which has a credit of %u", f->length, f->rank,
                       s->credit);
    /* Nothing would limit how many empty ones wait. */
    if (f->length == 0 && (!(f->flags & FRAME_FLAG_EOF) || s->end_came))
        return err_set(e, ERR_PROTOCOL, "an empty frame of rank %u", f->rank);
    s->end_came = s->end_came || (f->flags & FRAME_FLAG_EOF);
    s->credit -= f->length;
    struct record r = {f->length, f->flags};
    if (queue_record(o, s, &r, f->payload, e) < 0)
        return -1;
    if (s->stream == STREAM_STDERR)
        tail_put(&o->last_words[s->rank], f->payload, f->length);
    pump(o, o->of_stream[s->stream]);
    return 0;
}

static void abandon_stream(struct output *o, struct stream_state *s)
{
    struct record end = {0, FRAME_FLAG_EOF};
    struct err ignored = ERR_INIT;
    if (!s->ended && queue_record(o, s, &end, NULL, &ignored) < 0)
        end_stream(o, s);
}

void output_abandon(struct output *o, const uint32_t *rank, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        abandon_stream(o, &o->streams[2 * rank[i]]);
        abandon_stream(o, &o->streams[2 * rank[i] + 1]);
    }
    /* A line of theirs that was begun will not be completed. */
    for (int i = 0; i < 2; i++) {
        struct lane *lane = &o->lane[i];
        if (lane->owner && ranks_find(rank, ranks, lane->owner->rank) != UINT32_MAX)
            lane->owner_may_yield = true;
    }
    on_progress(o);
}

void output_end_line(struct output *o)
{
    struct lane *lane = o->of_stream[STREAM_STDERR];
    if (!lane->owner)
        return;
    sink_put(&lane->sink, "\n", 1);
    lane->owner->at_line_start = true;
    lane->owner = NULL;
    sink_flush(&lane->sink);
}

bool output_is_idle(const struct output *o)
{
    return sink_is_empty(&o->lane[0].sink) && sink_is_empty(&o->lane[1].sink) && !o->lane[0].first &&
           !o->lane[1].first;
}

uint64_t output_bytes(const struct output *o, uint32_t rank)
{
    return find(o, rank, STREAM_STDOUT)->bytes + find(o, rank, STREAM_STDERR)->bytes;
}

size_t output_last_words(const struct output *o, uint32_t rank, char out[TAIL_MAX + 1])
{
    return tail_lines(&o->last_words[rank], out);
}
