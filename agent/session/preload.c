/* --preload, between Hello and Spawn: the session takes the files, grants the launcher as many bytes as were
 * written, and says when all files are there. A failure refuses the job before a worker was started
 * anywhere. */
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "agent/session/preload_files.h"
#include "common/protocol/message.h"

#define GRANT_MIN (PRELOAD_WINDOW / 4) /* not a message for every frame */
#define COPY_MAX  (16u << 20)

struct session_preload {
    struct preload_files files;
    uint32_t owed; /* bytes that were written, and not granted again yet */
};

static void grant_bytes(struct session *s, uint32_t bytes)
{
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.stream = STREAM_FILE;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    session_send_control(s, &m);
}

static void evaluate_progress(struct session *s, int rc)
{
    Hvd__Preloaded preloaded = HVD__PRELOADED__INIT;
    CONTROL(m, PRELOADED, preloaded, &preloaded);
    if (rc < 0)
        fsm_post(&s->fsm, EV_REFUSED);
    else if (preload_files_are_complete(&s->preload->files))
        session_send_control(s, &m);
}

static int announce_files(struct session *s, const Hvd__Preload *asked, struct err *e)
{
    size_t room = COPY_MAX;
    if (preload_files_check(asked, e) < 0)
        return -1;
    struct job_dir_need need = preload_files_need(asked);
    if (session_make_directory(s, &need, e) < 0)
        return -1;
    Hvd__Preload *own = message_copy(&asked->base, &room);
    if (!own)
        return err_set(e, ERR_MEMORY, "no memory for %zu files", asked->n_file);
    return preload_files_open(&s->preload->files, &s->dir, own, e);
}

const char *session_preload_begin(struct session *s, const Hvd__Control *m)
{
    if (s->fsm.state != SESSION_READY || s->preload->files.list || s->refusal.why.code)
        return NULL;
    int rc = announce_files(s, m->preload, &s->refusal.why);
    if (rc == 0 && !preload_files_are_complete(&s->preload->files))
        grant_bytes(s, PRELOAD_WINDOW);
    evaluate_progress(s, rc);
    return NULL;
}

void session_preload_data(struct session *s, const struct frame *f)
{
    if (s->fsm.state != SESSION_READY || !s->preload->files.list || s->refusal.why.code)
        return; /* the launcher will be told the reason */
    int rc = preload_files_put(&s->preload->files, f->rank, f->payload, f->length, &s->refusal.why);
    s->preload->owed += f->length;
    if (rc == 0 && s->preload->owed >= GRANT_MIN) {
        grant_bytes(s, s->preload->owed);
        s->preload->owed = 0;
    }
    evaluate_progress(s, rc);
}

bool session_preload_path(const struct session *s, uint32_t number, char *out, size_t size)
{
    return preload_files_path(&s->preload->files, number, out, size);
}

static int open_preload(struct session *s, struct err *e)
{
    preload_files_init(&s->preload->files);
    return 0;
}

static int name_directory(struct session *s, struct worker_env_job *env, struct err *e)
{
    env->preload_dir = s->preload->files.path;
    return 0;
}

static void close_preload(struct session *s)
{
    preload_files_close(&s->preload->files);
}

const struct session_part session_part_preload = {
    .name = "preload",
    .state = SESSION_STATE(preload),
    .open = open_preload,
    .prepare = name_directory,
    .close = close_preload,
};
