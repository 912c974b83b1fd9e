/* A job has one program, or several, behind ':' on the command line: what each one's workers on this host
 * start with. Of a program without a rank here nothing is looked for. */
#include <stdlib.h>

#include "agent/session/preflight.h"
#include "agent/session/session.h"
#include "common/process/spawn.h"
#include "common/protocol/spawn_programs.h"

static bool is_here(const struct session *s, size_t i)
{
    return s->wdir[i] != NULL;
}

int session_programs_open(struct session *s, struct err *e)
{
    size_t count = spawn_programs(s->spawn);
    s->program = calloc(count, sizeof *s->program);
    s->wdir = calloc(count, sizeof *s->wdir);
    if (!s->program || !s->wdir)
        return err_set(e, ERR_MEMORY, "no memory for %zu programs", count);
    for (size_t i = 0; i < count; i++) {
        struct session_program *p = &s->program[i];
        if (!spawn_program_is_here(s->spawn, i))
            continue;
        struct spawn_program program = spawn_program_get(s->spawn, i);
        if (preflight_directory(program.wdir, s->spawn->launcher_dir, program.or_home, p->wdir,
                                sizeof p->wdir, e) < 0)
            return -1;
        s->wdir[i] = p->wdir;
    }
    return 0;
}

/* What it executes: a file that was copied here, or what a shell would find. */
static int find_program(struct session *s, size_t i, struct err *e)
{
    struct session_program *p = &s->program[i];
    struct spawn_program program = spawn_program_get(s->spawn, i);
    if (!program.preloaded)
        return spawn_find(program.argv[0], worker_env_get(&p->env, "PATH"), p->wdir, p->path, sizeof p->path,
                          e);
    if (preload_file(&s->preload, program.preloaded, p->path, sizeof p->path))
        return 0;
    return err_set(e, ERR_PROTOCOL, "%s is to be file %u, which was not copied", program.argv[0],
                   program.preloaded);
}

int session_programs_find(struct session *s, const struct worker_env_job *job, struct err *e)
{
    struct worker_env_job own = *job;
    for (size_t i = 0; i < spawn_programs(s->spawn); i++) {
        struct session_program *p = &s->program[i];
        own.program = i;
        if (!is_here(s, i))
            continue;
        if (worker_env_init(&p->env, &own, e) < 0 || find_program(s, i, e) < 0)
            return -1;
    }
    return 0;
}

char **session_programs_base(struct session *s)
{
    size_t first = spawn_programs(s->spawn);
    for (size_t i = spawn_programs(s->spawn); i-- > 0;) {
        if (!is_here(s, i))
            continue;
        (void)worker_env_base(&s->program[i].env);
        first = i;
    }
    return worker_env_base(&s->program[first].env);
}

void session_programs_close(struct session *s)
{
    for (size_t i = 0; s->program && i < spawn_programs(s->spawn); i++)
        worker_env_free(&s->program[i].env);
    free(s->program);
    free(s->wdir);
}
