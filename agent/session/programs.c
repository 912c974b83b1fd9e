/* A job has one program, or several, separated by ':' on the command line. Each program has a file, a
 * directory and an environment, with which its workers start. A program without a rank here has none. */
#include <stdlib.h>

#include "agent/session/parts.h"
#include "agent/session/preflight.h"
#include "common/process/spawn.h"
#include "common/protocol/spawn_programs.h"

struct session_programs {
    struct session_program *program; /* by program; empty where none of its ranks is here */
    const char **wdir;               /* by program; NULL where none of its ranks is here */
};

static bool is_here(const struct session *s, size_t i)
{
    return s->programs->wdir[i] != NULL;
}

struct session_program *session_program_get(struct session *s, size_t i)
{
    return &s->programs->program[i];
}

const char *const *session_programs_wdir(const struct session *s)
{
    return s->programs->wdir;
}

static int find_directories(struct session *s, struct worker_env_job *env, struct err *e)
{
    struct session_programs *own = s->programs;
    size_t count = spawn_programs(s->spawn);
    own->program = calloc(count, sizeof *own->program);
    own->wdir = calloc(count, sizeof *own->wdir);
    if (!own->program || !own->wdir)
        return err_set(e, ERR_MEMORY, "no memory for %zu programs", count);
    for (size_t i = 0; i < count; i++) {
        struct session_program *p = session_program_get(s, i);
        if (!spawn_program_is_here(s->spawn, i))
            continue;
        struct spawn_program program = spawn_program_get(s->spawn, i);
        if (preflight_directory(program.wdir, s->spawn->launcher_dir, program.or_home, p->wdir,
                                sizeof p->wdir, e) < 0)
            return -1;
        own->wdir[i] = p->wdir;
    }
    return 0;
}

/* The file is one that was copied here, or the file that a shell would find. */
static int find_program(struct session *s, size_t i, struct err *e)
{
    struct session_program *p = session_program_get(s, i);
    struct spawn_program program = spawn_program_get(s->spawn, i);
    if (!program.preloaded)
        return spawn_find(program.argv[0], worker_env_get(&p->env, "PATH"), p->wdir, p->path, sizeof p->path,
                          e);
    if (session_preload_path(s, program.preloaded, p->path, sizeof p->path))
        return 0;
    return err_set(e, ERR_PROTOCOL, "%s is to be file %u, which was not copied", program.argv[0],
                   program.preloaded);
}

static int make_environments(struct session *s, struct worker_env_job *env, struct err *e)
{
    struct worker_env_job own = *env;
    for (size_t i = 0; i < spawn_programs(s->spawn); i++) {
        struct session_program *p = session_program_get(s, i);
        own.program = i;
        own.wdir = p->wdir;
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
        (void)worker_env_base(&s->programs->program[i].env);
        first = i;
    }
    return worker_env_base(&s->programs->program[first].env);
}

static void free_programs(struct session *s)
{
    struct session_programs *own = s->programs;
    for (size_t i = 0; own->program && i < spawn_programs(s->spawn); i++)
        worker_env_free(&own->program[i].env);
    free(own->program);
    free(own->wdir);
}

const struct session_part session_part_programs = {
    .name = "programs",
    .state = SESSION_STATE(programs),
    .prepare = find_directories,
    .start = make_environments,
    .free = free_programs,
};
