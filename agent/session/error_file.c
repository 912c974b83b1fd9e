/* The words that a worker has written about its failure (agent/worker/error_file.h) reach the launcher before
 * the worker's end, as the words of a rank that gave up. A worker that fails because another one has failed
 * writes such a file, too; it is not the cause, and its words are left. */
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/worker/error_file.h"

static int name_files(struct session *s, struct worker_env_job *env, struct err *e)
{
    (void)e;
    env->directory = s->dir.path;
    return 0;
}

static void tell_words(struct session *s, const struct worker *w, const Hvd__Exited *told)
{
    char path[ERROR_FILE_MAX], text[ERROR_TEXT_MAX];
    Hvd__GaveUp gave_up = HVD__GAVE_UP__INIT;
    if ((told->status == 0 && told->signal == 0) || told->by_us || told->told_peer ||
        error_file_read(error_file_path(s->dir.path, w->rank, path), text) != 0)
        return;
    gave_up.rank = w->rank;
    gave_up.text = text;
    CONTROL(m, GAVE_UP, gave_up, &gave_up);
    session_send_control(s, &m);
}

const struct session_part session_part_error_file = {
    .name = "error file", .prepare = name_files, .reported = tell_words};
