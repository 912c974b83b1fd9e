/* The output of the workers: from data frames to hvdrun's stdout and stderr and to the files of
 * --output-filename.
 *
 *   frame -> stream's queue (raw, at most its credit) -> whole lines, tagged -> sink -> terminal
 *                                                                 `-> credit goes back to the session
 *
 * Lines are never torn: while a line of one stream is incomplete, its session holds the rest, and the sink
 * takes bytes of that stream only. A line that its worker has left unfinished (FRAME_FLAG_UNFINISHED) is
 * shown, and ended with a newline if another stream has something to say. Memory is bounded by the credits: a
 * stream that nobody reads stops its worker, not the loop. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/protocol/frame.h"
#include "launcher/cli/config.h"
#include "launcher/io/tail.h"
#include "launcher/plan/plan.h"

struct output;

struct output_events {
    /* So many bytes of this stream have left: its session may send as many more. */
    void (*consumed)(void *ctx, uint32_t rank, enum frame_stream stream, uint32_t bytes);
    /* Every frame of this rank was handled and both its streams have ended. */
    void (*rank_ended)(void *ctx, uint32_t rank);
    /* hvdrun's stdout or stderr (1, 2) cannot be written any more; its output is dropped from now on. */
    void (*broken)(void *ctx, int fd, int errnum);
    /* Nothing is waiting any more. */
    void (*drained)(void *ctx);
};

/* The credit with which each stdout and stderr of `size` ranks begins: a share of one pool. */
uint32_t output_window(uint32_t size);

/* Of --show-rank (may be NULL): a list, of ranks that `size` (0: not known yet) has. ERR_USAGE. */
int output_check_shown(const char *list, uint32_t size, struct err *e);
/* `host_names` by index in plan->host; everything given must outlive the output. There is `room` for more
 * ranks than the plan has. Creates the files of --output-filename, or appends to those of an earlier epoch.
 * NULL with *e filled. */
struct output *output_new(uv_loop_t *loop, const struct config *config, const struct plan *plan,
                          uint32_t room, const char *const *host_names, bool append,
                          const struct output_events *events, void *ctx, struct err *e);
/* The plan has a rank more. -1 with *e: the rank's files cannot be made. */
int output_add(struct output *o, uint32_t rank, struct err *e);
/* Stops writing; what waits is dropped. The loop must run once more before output_free. NULL is allowed in
 * both. */
void output_close(struct output *o);
void output_free(struct output *o);

/* A data frame of stdout or stderr. -1 with *e when it says what it may not (rank, more than its credit). */
int output_frame(struct output *o, const struct frame *f, struct err *e);
/* The host of these ranks is gone: what is incomplete stays so, their streams have ended. */
void output_abandon(struct output *o, const uint32_t *rank, uint32_t ranks);
/* hvdrun has something to say on stderr: ends the line that a worker has left unfinished there. */
void output_end_line(struct output *o);
bool output_is_idle(const struct output *o);
/* Bytes that a rank has printed. */
uint64_t output_bytes(const struct output *o, uint32_t rank);
/* The last lines of its stderr, as tail_lines gives them. */
size_t output_last_words(const struct output *o, uint32_t rank, char out[TAIL_MAX + 1]);
