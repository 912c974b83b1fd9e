/* --preload, between Hello and Spawn: the session takes the files, grants the launcher as many bytes as it
 * has written, and says when all are there. What goes wrong refuses the job, before a worker was started
 * anywhere. */
#include "agent/session/session.h"
#include "common/protocol/message.h"

#define GRANT_MIN (PRELOAD_WINDOW / 4) /* not a message for every frame */
#define COPY_MAX  (16u << 20)

static void grant(struct session *s, uint32_t bytes)
{
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.stream = STREAM_FILE;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    session_send(s, &m);
}

static void go_on(struct session *s, int rc)
{
    Hvd__Preloaded preloaded = HVD__PRELOADED__INIT;
    CONTROL(m, PRELOADED, preloaded, &preloaded);
    if (rc < 0)
        fsm_post(&s->fsm, EV_REFUSED);
    else if (preload_is_complete(&s->preload))
        session_send(s, &m);
}

static int begin(struct session *s, const Hvd__Preload *asked, struct err *e)
{
    size_t room = COPY_MAX;
    if (preload_check(asked, e) < 0)
        return -1;
    struct job_dir_need need = preload_need(asked);
    if (session_directory(s, &need, e) < 0)
        return -1;
    Hvd__Preload *own = message_copy(&asked->base, &room);
    if (!own)
        return err_set(e, ERR_MEMORY, "no memory for %zu files", asked->n_file);
    return preload_open(&s->preload, &s->dir, own, e);
}

void session_preload(struct session *s, const Hvd__Preload *asked)
{
    if (s->fsm.state != SESSION_READY || s->preload.list || s->refusal.code)
        return;
    int rc = begin(s, asked, &s->refusal);
    if (rc == 0 && !preload_is_complete(&s->preload))
        grant(s, PRELOAD_WINDOW);
    go_on(s, rc);
}

void session_preload_data(struct session *s, const struct frame *f)
{
    if (s->fsm.state != SESSION_READY || !s->preload.list || s->refusal.code)
        return; /* the launcher will hear why */
    int rc = preload_put(&s->preload, f->rank, f->payload, f->length, &s->refusal);
    s->preload_owed += f->length;
    if (rc == 0 && s->preload_owed >= GRANT_MIN) {
        grant(s, s->preload_owed);
        s->preload_owed = 0;
    }
    go_on(s, rc);
}
