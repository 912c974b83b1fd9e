#include "agent/rendezvous/pmix_client/pmix_variables.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/guard/job_dir.h"
#include "agent/rendezvous/pmix_client/pmix.h"
#include "common/base/log.h"
#include "common/protocol/spawn_programs.h"

/* The rule for a variable that has another value from the library or from the user. */
enum rule {
    MUST_AGREE,     /* the library's clients cannot do with another value than the library's */
    OURS,           /* the library knows nothing of it, or any value will do */
    UNLESS_SET,     /* the user's own wins */
    UNLESS_BINDING, /* the same, and OpenMPI's ranks may be told to bind themselves */
    IF_CROWDED      /* the same, and only where ranks share processors */
};

/* The contract's variables. */
static const struct {
    const char *name,
        *format; /* %d: directory, %n: name space, %u: URI, %h: our host's name, %s: in shared memory */
    enum rule rule;
} variables[] = {
    {"PMIX_NAMESPACE", "%n", MUST_AGREE},
    {"PMIX_SERVER_URI41", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI4", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI3", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI2", "%u", MUST_AGREE},
    {"PMIX_SERVER_URI21", "%u", MUST_AGREE},
    {"PMIX_SECURITY_MODE", "native", MUST_AGREE},
    {"PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC", MUST_AGREE},
    {"PMIX_GDS_MODULE", "hash", MUST_AGREE},
    {"PMIX_SERVER_TMPDIR", "%d", MUST_AGREE},
    {"PMIX_SYSTEM_TMPDIR", "%d", OURS},
    {"PMIX_HOSTNAME", "%h", OURS},
    /* Without it OpenMPI 4 takes every rank for a job of its own. */
    {"OMPI_MCA_orte_local_daemon_uri", "1.0;tcp://127.0.0.1:1", OURS},
    /* The workers are bound already, or are meant to be free. Otherwise each rank first finds the machine's
     * topology, only to see whether it is bound. */
    {"OMPI_MCA_orte_bound_at_launch", "1", UNLESS_BINDING},
    /* A directory in shared memory; by itself it would leave files of killed ranks in /dev/shm. */
    {"OMPI_MCA_btl_vader_backing_directory", "%s", UNLESS_SET},
    {"OMPI_MCA_btl_sm_backing_directory", "%s", UNLESS_SET}, /* OpenMPI 5's name for it */
    /* OpenMPI 4 then gives its processor away while it waits, unless the user's mpi_yield_when_idle says
     * otherwise; later ones ask PMIx (PMIX_NODE_OVERSUBSCRIBED). */
    {"OMPI_MCA_mpi_oversubscribe", "1", IF_CROWDED},
};
#define VARIABLES (sizeof variables / sizeof *variables)

static void insert_variable(const struct pmix_variables *v, char what, char *text, size_t size)
{
    char shared[JOB_DIR_MAX];
    switch (what) {
    case 'd':
        pmix_server_directory(v->r, text, size);
        break;
    case 'n':
        snprintf(text, size, "%s", v->r->spawn->namespace_);
        break;
    case 's':
        job_dir_shared_path(v->r->directory, shared);
        snprintf(text, size, "%s", shared);
        break;
    case 'h':
        pmix_node_name(v->r, v->r->spawn->host_index, text, size);
        break;
    default:
        pmix_server_name(v->r, text, size);
        snprintf(text + strlen(text), size - strlen(text), ".%u;tcp4://127.0.0.1:%u", v->r->spawn->host_index,
                 (unsigned)v->port);
    }
}

static void format_variable(const struct pmix_variables *v, size_t i, char *text, size_t size)
{
    size_t at = (size_t)snprintf(text, size, "%s=", variables[i].name);
    for (const char *f = variables[i].format; *f && at + 1 < size; f++) {
        if (*f != '%') {
            text[at++] = *f;
            text[at] = '\0';
            continue;
        }
        insert_variable(v, *++f, text + at, size - at);
        at += strlen(text + at);
    }
}

static int add_variable(struct pmix_variables *v, const char *text, struct err *e)
{
    char **more = realloc(v->list, (v->count + 2) * sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for the workers' environment");
    v->list = more;
    v->list[v->count] = strdup(text);
    v->list[v->count + 1] = NULL;
    return v->list[v->count++] ? 0 : err_set(e, ERR_MEMORY, "no memory for the workers' environment");
}

const char *pmix_variables_find(char *const *environment, size_t count, const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environment[i], name, len) == 0 && environment[i][len] == '=')
            return environment[i] + len + 1;
    return NULL;
}

/* For any of the programs here: the list is the same for all. */
bool pmix_variables_given(const Hvd__Spawn *spawn, const char *name)
{
    for (size_t i = 0; i < spawn_programs(spawn); i++) {
        struct spawn_program p = spawn_program_get(spawn, i);
        if (pmix_variables_find(p.env, p.n_env, name))
            return true;
    }
    return false;
}

static bool is_left_out(const struct rendezvous *r, size_t i)
{
    enum rule rule = variables[i].rule;
    return (rule >= UNLESS_SET && pmix_variables_given(r->spawn, variables[i].name)) ||
           (rule == UNLESS_BINDING && pmix_variables_given(r->spawn, "OMPI_MCA_hwloc_base_binding_policy")) ||
           (rule == IF_CROWDED && !r->values.crowded);
}

/* Those of PMIx only when the library was not asked. */
int pmix_variables_predict(struct pmix_variables *v, struct err *e)
{
    char text[PATH_MAX + 128];
    bool asked = v->list != NULL;
    for (size_t i = 0; i < VARIABLES; i++) {
        bool known = asked && strncmp(variables[i].name, "PMIX_", 5) == 0;
        if (known || is_left_out(v->r, i))
            continue;
        format_variable(v, i, text, sizeof text);
        if (add_variable(v, text, e) < 0)
            return -1;
    }
    return 0;
}

static bool is_uri(const char *entry)
{
    return strncmp(entry, "PMIX_SERVER_URI", strlen("PMIX_SERVER_URI")) == 0;
}

/* The library's own word; but its clients come through the listener. */
int pmix_variables_adopt(struct pmix_variables *v, char *const *said, size_t count, struct err *e)
{
    char text[PATH_MAX + 128];
    for (size_t i = 0; i < count; i++) {
        const char *port = is_uri(said[i]) ? strrchr(said[i], ':') : NULL;
        if (strncmp(said[i], "PMIX_RANK=", strlen("PMIX_RANK=")) == 0)
            continue;
        if (port)
            snprintf(text, sizeof text, "%.*s:%u", (int)(port - said[i]), said[i], (unsigned)v->port);
        else
            snprintf(text, sizeof text, "%s", said[i]);
        if (add_variable(v, text, e) < 0)
            return -1;
    }
    return 0;
}

/* As far as the port, which is the listener's here and the library's there. */
static bool same_value(const char *name, const char *told, const char *said)
{
    if (!is_uri(name))
        return strcmp(told, said) == 0;
    const char *port = strrchr(said, ':');
    size_t len = port ? (size_t)(port - said) : strlen(said);
    return strncmp(told, said, len) == 0 && told[len] == ':';
}

/* Were the workers told what the library would have told them? */
void pmix_variables_compare(struct pmix_variables *v, char *const *said, size_t count)
{
    char text[512];
    for (size_t i = 0; i < VARIABLES; i++) {
        const char *value = pmix_variables_find(said, count, variables[i].name);
        const char *told = pmix_variables_find(v->list, v->count, variables[i].name);
        if (variables[i].rule != MUST_AGREE || !told || (value && same_value(variables[i].name, told, value)))
            continue;
        snprintf(text, sizeof text,
                 "this host's PMIx library wants other variables than its clients were given (%s=%.100s, not "
                 "%.100s): if they fail, run with --rendezvous env,pmix",
                 variables[i].name, value ? value : "", told);
        v->r->events->notice(v->r->ctx, LOG_WARNING, text);
        return;
    }
}

void pmix_variables_free(struct pmix_variables *v)
{
    for (size_t i = 0; i < v->count; i++)
        free(v->list[i]);
    free(v->list);
    v->list = NULL;
    v->count = 0;
}
