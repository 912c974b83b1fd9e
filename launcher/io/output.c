#include "launcher/io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/ranks.h"
#include "launcher/io/collapse.h"
#include "launcher/io/fd_writer.h"
#include "launcher/io/output_files.h"

#define POOL       (8u << 20)
#define WINDOW_MIN (4u << 10)
#define WINDOW_MAX (256u << 10)

/* A frame in a stream's queue: this, then its bytes. */
struct record {
    uint32_t length;
    uint8_t flags;
};

struct stream_state {
    struct stream_state *next; /* in the sink's list of those that have something */
    struct buf queue;          /* records */
    uint32_t rank;
    uint32_t credit; /* bytes that the session may still send */
    uint8_t stream;
    bool listed, at_line_start;
    bool hidden;   /* by --show-rank */
    bool end_came; /* the frame that says: all that its worker wrote has come, */
    bool ended;    /* and everything before it was shown */
    uint64_t bytes;
    uint64_t place; /* of its last line in its lane's groups */
};

struct lane { /* one sink and the streams that lead to it */
    struct sink sink;
    struct stream_state *first, **last;
    struct stream_state *owner; /* of the line that is begun; NULL between lines */
    bool owner_may_yield;       /* that line was left unfinished by its worker */
    bool told;                  /* that it broke */
    bool colored;
    struct collapse groups; /* with --collapse: lines that wait for equal ones */
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
    uv_timer_t patience;          /* with --collapse */
    uint32_t shown;               /* ranks */
    uint32_t window;              /* the credit with which a stream begins */
    uint32_t open;                /* their streams that have not ended */
    struct stream_state *streams; /* two per rank */
    struct tail *last_words;      /* of each rank's stderr */
};

/* ---- the beginning of a line --------------------------------------------------------------------------- */

/* Time, ranks and colour, by --tag, --color, --collapse and --prefix-output-with-timestamp. */

#define LINE_TAG_MAX 512
#define COLORS       12u /* red to cyan, then the bright ones */

/* Are tags that go to this descriptor to have colours? */
static bool line_tag_wants_color(const struct config *config, int fd)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (config->tag == CONFIG_TAG_NONE || config->color == CONFIG_COLOR_NEVER)
        return false;
    return config->color == CONFIG_COLOR_ALWAYS ||
           (isatty(fd) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0));
}

/* The ranks' part. */
static int format_ranks(const struct config *config, bool colored, enum frame_stream stream,
                        const uint32_t *rank, uint32_t count, const char *host, char *out, size_t size)
{
    char color[16] = "", plain[8] = "", who[300];
    const char *name = stream == STREAM_STDERR ? "stderr" : "stdout";
    uint32_t i = rank[0] % COLORS;
    if (colored && count == 1) {
        snprintf(color, sizeof color, "\033[%um", i < COLORS / 2 ? 31 + i : 91 + i - COLORS / 2);
        snprintf(plain, sizeof plain, "\033[0m");
    }
    ranks_text_short(rank, count, who, sizeof who);
    if (config->tag == CONFIG_TAG_NONE)
        return snprintf(out, size, "%s[%s]%s ", color, who, plain);
    if (config->tag == CONFIG_TAG_RANK || count > 1)
        return snprintf(out, size, "%s[%s]<%s>:%s", color, who, name, plain);
    return snprintf(out, size, "%s[%s@%s]<%s>:%s", color, who, host, name, plain);
}

/* The beginning of a line that `count` ranks, ascending, have printed; `host` is the first one's. Returns its
 * length. */
static size_t line_tag(const struct config *config, bool colored, enum frame_stream stream,
                       const uint32_t *rank, uint32_t count, const char *host, char out[LINE_TAG_MAX])
{
    size_t len = 0, size = LINE_TAG_MAX;
    int n = 0;
    if (config->prefix_timestamp) {
        time_t now = time(NULL);
        struct tm tm;
        localtime_r(&now, &tm);
        len = strftime(out, size, "%a %b %e %H:%M:%S %Y", &tm);
    }
    if (config->tag != CONFIG_TAG_NONE || config->collapse)
        n = format_ranks(config, colored, stream, rank, count, host, out + len, size - len);
    else if (len > 0)
        n = snprintf(out + len, size - len, ": ");
    return len + (n > 0 && (size_t)n < size - len ? (size_t)n : 0);
}

/* ---- the streams --------------------------------------------------------------------------------------- */

uint32_t output_window(uint32_t size)
{
    uint32_t share = POOL / (2 * (size ? size : 1));
    return share < WINDOW_MIN ? WINDOW_MIN : share > WINDOW_MAX ? WINDOW_MAX : share;
}

static struct stream_state *find_stream(const struct output *o, uint32_t rank, enum frame_stream stream)
{
    return &o->streams[2 * (size_t)rank + (stream == STREAM_STDERR)];
}

static void on_progress(void *ctx);
static void on_patience(uv_timer_t *timer);

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

static void open_streams(struct output *o, uint32_t rank)
{
    for (uint32_t i = 2 * rank; i < 2 * rank + 2; i++) {
        struct stream_state *s = &o->streams[i];
        s->rank = rank;
        s->stream = i % 2 ? STREAM_STDERR : STREAM_STDOUT;
        s->credit = o->window;
        s->at_line_start = true;
        s->hidden = o->config->show_rank && !ranks_listed(o->config->show_rank, rank);
        o->open += !s->hidden;
        buf_init(&s->queue, SIZE_MAX / 2);
    }
}

int output_add(struct output *o, uint32_t rank, struct err *e)
{
    open_streams(o, rank);
    o->shown += !o->streams[2 * rank].hidden;
    return o->files ? output_files_add(o->files, rank, e) : 0;
}

struct output *output_new(uv_loop_t *loop, const struct config *config, const struct plan *plan,
                          uint32_t room, const char *const *host_names, bool append,
                          const struct output_events *events, void *ctx, struct err *e)
{
    struct output *o = calloc(1, sizeof *o);
    struct stream_state *streams = calloc(2 * (size_t)room, sizeof *streams);
    struct tail *last_words = calloc(room, sizeof *last_words);
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
    o->window = output_window(plan->size);
    for (uint32_t i = 0; i < plan->size; i++)
        open_streams(o, i);
    o->shown = o->open / 2;
    for (int i = 0; i < 2; i++) {
        collapse_init(&o->lane[i].groups);
        sink_init(&o->lane[i].sink, loop, i + 1, on_progress, o);
        o->lane[i].last = &o->lane[i].first;
        o->lane[i].colored = line_tag_wants_color(config, i + 1);
    }
    /* Both on one terminal or file: one lane, or lines of stderr would tear those of stdout. */
    o->of_stream[STREAM_STDOUT] = &o->lane[0];
    o->of_stream[STREAM_STDERR] = same_file(1, 2) ? &o->lane[0] : &o->lane[1];
    if (config->output_filename &&
        !(o->files = output_files_new(config->output_filename, plan, room, host_names, append, e))) {
        output_free(o);
        return NULL;
    }
    if (config->collapse)
        uv_timer_init(loop, &o->patience);
    o->patience.data = o;
    return o;
}

void output_close(struct output *o)
{
    for (int i = 0; o && i < 2; i++)
        sink_close(&o->lane[i].sink);
    if (o && o->config->collapse)
        uv_close((uv_handle_t *)&o->patience, NULL);
}

void output_free(struct output *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; i < 2 * o->plan->size; i++)
        buf_free(&o->streams[i].queue);
    for (uint32_t i = 0; i < o->plan->size; i++)
        tail_free(&o->last_words[i]);
    for (int i = 0; i < 2; i++)
        collapse_free(&o->lane[i].groups);
    output_files_free(o->files);
    free(o->last_words);
    free(o->streams);
    free(o);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

static size_t tag_line(const struct output *o, enum frame_stream stream, const uint32_t *rank, uint32_t count,
                       char out[LINE_TAG_MAX])
{
    return line_tag(o->config, o->of_stream[stream]->colored, stream, rank, count,
                    o->host_names[o->plan->rank[rank[0]].host], out);
}

static void put_lines(struct output *o, struct lane *lane, struct stream_state *s, const uint8_t *bytes,
                      size_t len)
{
    bool exact = o->config->pty && s->rank == (uint32_t)o->config->stdin_rank; /* of a terminal */
    bool plain = o->config->tag == CONFIG_TAG_NONE && !o->config->prefix_timestamp && !o->config->collapse;
    plain = plain || exact;
    char prefix[LINE_TAG_MAX];
    size_t prefix_len = plain ? 0 : tag_line(o, s->stream, &s->rank, 1, prefix);
    while (len > 0) {
        size_t piece = 0;
        while (!plain && piece < len && bytes[piece] != '\n' && bytes[piece] != '\r')
            piece++;
        piece = plain ? len : piece < len ? piece + 1 : piece;
        if (s->at_line_start)
            sink_put(&lane->sink, prefix, prefix_len);
        (exact ? sink_put_exact : sink_put)(&lane->sink, bytes, piece);
        s->at_line_start = bytes[piece - 1] == '\n' || bytes[piece - 1] == '\r';
        bytes += piece;
        len -= piece;
    }
}

/* ---- from queue to sink -------------------------------------------------------------------------------- */

/* The stream of the next record; NULL: no record can be shown now. */
static struct stream_state *choose_stream(struct lane *lane)
{
    struct stream_state *owner = lane->owner;
    if (owner && owner->queue.len > 0)
        return owner;
    if (owner && !owner->ended && !lane->owner_may_yield)
        return NULL;
    return lane->first;
}

static void unlist_stream(struct lane *lane, struct stream_state *s)
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

static void enlist_stream(struct lane *lane, struct stream_state *s)
{
    if (s->listed)
        return;
    s->listed = true;
    *lane->last = s;
    lane->last = &s->next;
}

/* Ends the line that was left unfinished. */
static void end_begun_line(struct lane *lane)
{
    if (!lane->owner)
        return;
    sink_put(&lane->sink, "\n", 1);
    lane->owner->at_line_start = true;
    lane->owner = NULL;
}

static void show_bytes(struct output *o, struct lane *lane, struct stream_state *s, const uint8_t *bytes,
                       const struct record *r)
{
    if (lane->owner != s)
        end_begun_line(lane);
    put_lines(o, lane, s, bytes, r->length);
    lane->owner = s->at_line_start ? NULL : s;
    lane->owner_may_yield = r->flags & FRAME_FLAG_UNFINISHED;
}

/* Shows the groups whose time has come, and all up to that place (UINT64_MAX: all). */
static void show_groups(struct output *o, struct lane *lane, uint64_t through)
{
    struct collapse *c = &lane->groups;
    uint64_t now = clock_now();
    if (lane->owner && !lane->owner->ended && !lane->owner_may_yield)
        return; /* in the middle of a line, of which more is on its way */
    while (c->first && (through == UINT64_MAX || collapse_has(c, through) || collapse_is_full(c) ||
                        (sink_wants(&lane->sink) && collapse_is_ready(c, o->shown, now)))) {
        char prefix[LINE_TAG_MAX];
        struct collapse_group *g = c->first;
        end_begun_line(lane);
        collapse_sort(g);
        sink_put(&lane->sink, prefix, tag_line(o, g->stream, g->rank, g->count, prefix));
        sink_put(&lane->sink, g->bytes, g->len);
        collapse_drop(c);
    }
    uint64_t due = collapse_due(c);
    uint64_t wait = due > now && due != UINT64_MAX ? (due - now) / NSEC_PER_MSEC + 1 : 0;
    bool armed = wait && uv_is_active((uv_handle_t *)&o->patience);
    if (wait && (!armed || uv_timer_get_due_in(&o->patience) > wait))
        uv_timer_start(&o->patience, on_patience, wait, 0);
}

/* Whole lines wait for equal ones; what is no whole line is shown at once, behind what came before it. */
static void collapse_bytes(struct output *o, struct lane *lane, struct stream_state *s, const uint8_t *bytes,
                           const struct record *r)
{
    struct record rest = *r;
    uint64_t now = clock_now();
    size_t len;
    while (s->at_line_start && (len = collapse_line(bytes, rest.length)) > 0 &&
           collapse_put(&lane->groups, s->stream, s->rank, &s->place, bytes, len, now) == 0) {
        bytes += len;
        rest.length -= (uint32_t)len;
    }
    if (rest.length > 0) {
        show_groups(o, lane, s->place);
        show_bytes(o, lane, s, bytes, &rest);
    }
    show_groups(o, lane, 0);
}

/* Bytes may still follow: of a process that the worker left behind. */
static void end_stream(struct output *o, struct stream_state *s)
{
    if (s->ended)
        return;
    s->ended = true;
    o->open -= !s->hidden;
    for (int i = 0; i < 2 && o->open == 0; i++)
        show_groups(o, &o->lane[i], UINT64_MAX); /* nobody will join them */
    if (find_stream(o, s->rank, STREAM_STDOUT)->ended && find_stream(o, s->rank, STREAM_STDERR)->ended)
        o->events->rank_ended(o->ctx, s->rank);
}

static void show_record(struct output *o, struct lane *lane, struct stream_state *s)
{
    struct record r;
    memcpy(&r, buf_data(&s->queue), sizeof r);
    const uint8_t *bytes = buf_data(&s->queue) + sizeof r;
    if (r.length > 0 && !s->hidden && o->config->collapse)
        collapse_bytes(o, lane, s, bytes, &r);
    else if (r.length > 0 && !s->hidden)
        show_bytes(o, lane, s, bytes, &r);
    if (o->files)
        output_files_write(o->files, s->rank, s->stream, bytes, r.length);
    s->bytes += r.length;
    buf_consume(&s->queue, sizeof r + r.length);
    unlist_stream(lane, s);
    if (s->queue.len > 0)
        enlist_stream(lane, s);
    if (r.flags & FRAME_FLAG_EOF) {
        end_stream(o, s);
    } else if (r.length > 0) {
        s->credit += r.length;
        o->events->consumed(o->ctx, s->rank, s->stream, r.length);
    }
}

static void pump_lane(struct output *o, struct lane *lane)
{
    struct stream_state *s;
    do {
        while (sink_wants(&lane->sink) && (s = choose_stream(lane)))
            show_record(o, lane, s);
        sink_flush(&lane->sink);
        if (lane->sink.broken && !lane->told) {
            lane->told = true;
            o->events->broken(o->ctx, lane->sink.fd, lane->sink.broken);
        }
    } while (sink_wants(&lane->sink) && choose_stream(lane));
}

static void on_progress(void *ctx)
{
    struct output *o = ctx;
    for (int i = 0; i < 2; i++)
        show_groups(o, &o->lane[i], 0);
    pump_lane(o, &o->lane[0]);
    pump_lane(o, &o->lane[1]);
    if (output_is_idle(o))
        o->events->drained(o->ctx);
}

static void on_patience(uv_timer_t *timer)
{
    on_progress(timer->data);
}

/* ---- from outside -------------------------------------------------------------------------------------- */

static int queue_record(struct output *o, struct stream_state *s, const struct record *r,
                        const uint8_t *payload, struct err *e)
{
    if (!buf_reserve(&s->queue, sizeof *r + r->length))
        return err_set(e, ERR_MEMORY, "no memory for the output of rank %u", s->rank);
    (void)buf_put(&s->queue, r, sizeof *r);
    (void)buf_put(&s->queue, payload, r->length);
    enlist_stream(o->of_stream[s->stream], s);
    return 0;
}

int output_frame(struct output *o, const struct frame *f, struct err *e)
{
    if (f->rank >= o->plan->size || f->stream == STREAM_STDIN)
        return err_set(e, ERR_PROTOCOL, "output of rank %u, stream %u, which does not exist", f->rank,
                       (unsigned)f->stream);
    struct stream_state *s = find_stream(o, f->rank, f->stream);
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
    pump_lane(o, o->of_stream[s->stream]);
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
    end_begun_line(lane);
    sink_flush(&lane->sink);
}

bool output_is_idle(const struct output *o)
{
    return sink_is_empty(&o->lane[0].sink) && sink_is_empty(&o->lane[1].sink) && !o->lane[0].first &&
           !o->lane[1].first && !o->lane[0].groups.first && !o->lane[1].groups.first;
}

uint64_t output_bytes(const struct output *o, uint32_t rank)
{
    return find_stream(o, rank, STREAM_STDOUT)->bytes + find_stream(o, rank, STREAM_STDERR)->bytes;
}

size_t output_last_words(const struct output *o, uint32_t rank, char out[TAIL_MAX + 1])
{
    return tail_lines(&o->last_words[rank], out);
}
