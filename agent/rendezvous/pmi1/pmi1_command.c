/* The commands of PMI-1. A table says which command is legal in which phase; an unknown or illegal command is
 * answered with an error. */
#include "agent/rendezvous/pmi1/pmi1.h"

#include <stdio.h>
#include <string.h>

#include "agent/rendezvous/pmi1/pmi1_message.h"
#include "agent/rendezvous/pmi1/pmi1_store.h"
#include "common/protocol/spawn_programs.h"
#include "common/base/clock.h"

#define UNKNOWN_STATUS 1 /* of cmd=abort without a number */

static void set_rank(struct pmi1_client *c, uint32_t rank)
{
    c->rank = rank;
    c->phase = PMI1_BOUND;
    pmi1_answer(c, "cmd=initack");
    pmi1_answer(c, "cmd=set size=%u", c->p->r->spawn->size);
    pmi1_answer(c, "cmd=set rank=%u", rank);
    pmi1_answer(c, "cmd=set debug=0");
}

static void do_initack(struct pmi1_client *c, const struct pmi1_message *m)
{
    struct pmi1 *p = c->p;
    uint32_t rank;
    char why[96] = "";
    if (!pmi1_get_number(m, "pmiid", UINT32_MAX, &rank))
        snprintf(why, sizeof why, "it names no rank");
    else if (!pmi1_is_here(p, rank))
        snprintf(why, sizeof why, "rank %u is not on this host", rank);
    else if (p->r->end[rank])
        snprintf(why, sizeof why, "rank %u has ended", rank);
    else if (pmi1_client_of(p, rank))
        snprintf(why, sizeof why, "another process is rank %u already", rank);
    if (!why[0]) {
        set_rank(c, rank);
        return;
    }
    pmi1_notice(p, "a process that wanted to join as an MPI rank (PMI-1) was refused: %s", why);
    pmi1_refuse(c, "error", why);
    pmi1_client_close(c);
}

static void do_init(struct pmi1_client *c, const struct pmi1_message *m)
{
    uint32_t version;
    if (pmi1_get_number(m, "pmi_version", UINT32_MAX, &version) && version == 1) {
        c->phase = PMI1_READY;
        pmi1_answer(c, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
        return;
    }
    pmi1_answer(c, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1");
}

static void do_get_maxes(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    pmi1_answer(c, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d", PMI1_NAME_MAX, PMI1_KEY_MAX,
                PMI1_VALUE_MAX);
}

static void do_get_appnum(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    pmi1_answer(c, "cmd=appnum appnum=%zu", spawn_program_of(c->p->r->spawn, c->rank));
}

static void do_get_universe_size(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    pmi1_answer(c, "cmd=universe_size size=%u", c->p->r->spawn->size);
}

static void do_get_my_kvsname(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    pmi1_answer(c, "cmd=my_kvsname kvsname=%s", c->p->r->job);
}

/* NULL and answered when the line names another key-value space than the job's. */
static const char *key_of(struct pmi1_client *c, const struct pmi1_message *m, const char *answer)
{
    const char *space = pmi1_get(m, "kvsname"), *key = pmi1_get(m, "key");
    if (space && strcmp(space, c->p->r->job) == 0 && key && *key && strlen(key) < PMI1_KEY_MAX)
        return key;
    pmi1_refuse(c, answer,
                !key || !*key                 ? "no key"
                : strlen(key) >= PMI1_KEY_MAX ? "the key is too long"
                                              : "no such kvsname");
    return NULL;
}

static void do_put(struct pmi1_client *c, const struct pmi1_message *m)
{
    const char *key = key_of(c, m, "put_result"), *value = pmi1_get(m, "value");
    struct err e = ERR_INIT;
    if (!key)
        return;
    if (!value)
        err_set(&e, ERR_PROTOCOL, "no value");
    else if (strlen(value) >= PMI1_VALUE_MAX)
        err_set(&e, ERR_PROTOCOL, "the value is too long");
    else if (strcmp(key, "PMI_process_mapping") == 0)
        err_set(&e, ERR_PROTOCOL, "this key is not the program's");
    if (e.code || pmi1_store_put(&c->p->store, key, value, &e) < 0 ||
        pmi1_barrier_put(c->p, key, value, &e) < 0)
        pmi1_refuse(c, "put_result", e.text);
    else
        pmi1_answer(c, "cmd=put_result rc=0 msg=success");
}

static void do_get(struct pmi1_client *c, const struct pmi1_message *m)
{
    const char *key = key_of(c, m, "get_result");
    if (!key)
        return;
    const char *value = pmi1_store_get(&c->p->store, key);
    if (value)
        pmi1_answer(c, "cmd=get_result rc=0 msg=success value=%s", value);
    else
        pmi1_refuse(c, "get_result", "key not found");
}

static void do_getbyidx(struct pmi1_client *c, const struct pmi1_message *m)
{
    const struct pmi1_store *s = &c->p->store;
    uint32_t i;
    if (!pmi1_get_number(m, "idx", UINT32_MAX - 1, &i))
        pmi1_refuse(c, "getbyidx_results", "no idx");
    else if (i >= s->pairs)
        pmi1_answer(c, "cmd=getbyidx_results rc=-2 reason=no_more_keyvals");
    else
        pmi1_answer(c, "cmd=getbyidx_results rc=0 nextidx=%u key=%s val=%s", i + 1, s->pair[i]->key,
                    s->pair[i]->value);
}

static void do_barrier_in(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    if (c->waiting)
        pmi1_refuse(c, "error", "it waits in a barrier already");
    else
        pmi1_barrier_enter(c);
}

static void do_finalize(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    c->phase = PMI1_FINAL;
    pmi1_answer(c, "cmd=finalize_ack rc=0");
}

static void do_abort(struct pmi1_client *c, const struct pmi1_message *m)
{
    struct rendezvous *r = c->p->r;
    const char *code = pmi1_get(m, "exitcode");
    char text[96];
    uint32_t status = UNKNOWN_STATUS;
    bool negative = code && code[0] == '-';
    struct pmi1_message positive = {.field = {{"exitcode", negative ? code + 1
                                                           : code   ? code
                                                                    : ""}},
                                    .fields = 1};
    if (pmi1_get_number(&positive, "exitcode", UINT32_MAX, &status) && negative)
        status = 0 - status;
    snprintf(text, sizeof text, "MPI_Abort with %.40s", code ? code : "no code");
    c->phase = PMI1_FINAL; /* cmd=finalize is not expected any more */
    r->events->abort(r->ctx, c->rank, status, text, clock_now());
}

/* Further lines follow, up to "endcmd". Only the last of several commands is answered. */
static void do_spawn(struct pmi1_client *c, const struct pmi1_message *m)
{
    (void)m;
    c->spawning = true;
    c->spawn_ends = true;
}

static void take_spawn_line(struct pmi1_client *c, const char *line)
{
    static const char total[] = "totspawns=", now[] = "spawnssofar=";
    if (strncmp(line, total, sizeof total - 1) == 0)
        snprintf(c->total, sizeof c->total, "%s", line + sizeof total - 1);
    if (strncmp(line, now, sizeof now - 1) == 0)
        c->spawn_ends = strcmp(line + sizeof now - 1, c->total) == 0;
    if (strcmp(line, "endcmd") != 0)
        return;
    c->spawning = false;
    if (!c->spawn_ends)
        return;
    pmi1_notice(c->p, "rank %u asked for new processes: MPI_Comm_spawn is not offered", c->rank);
    pmi1_refuse(c, "spawn_result", "hvdrun does not start further processes");
}

/* ---- the table ----------------------------------------------------------------------------------------- */

#define IN(phase) (1u << (phase))

static const struct command {
    const char *name;
    unsigned phases;
    void (*act)(struct pmi1_client *c, const struct pmi1_message *m);
} commands[] = {
    {"initack", IN(PMI1_UNIDENTIFIED), do_initack},
    {"init", IN(PMI1_BOUND) | IN(PMI1_READY), do_init},
    {"get_maxes", IN(PMI1_READY), do_get_maxes},
    {"get_appnum", IN(PMI1_READY), do_get_appnum},
    {"get_universe_size", IN(PMI1_READY), do_get_universe_size},
    {"get_my_kvsname", IN(PMI1_READY), do_get_my_kvsname},
    {"put", IN(PMI1_READY), do_put},
    {"get", IN(PMI1_READY), do_get},
    {"getbyidx", IN(PMI1_READY), do_getbyidx},
    {"barrier_in", IN(PMI1_READY), do_barrier_in},
    {"publish_name", IN(PMI1_READY), pmi1_publish},
    {"unpublish_name", IN(PMI1_READY), pmi1_unpublish},
    {"lookup_name", IN(PMI1_READY), pmi1_lookup},
    {"spawn", IN(PMI1_READY), do_spawn},
    {"finalize", IN(PMI1_READY), do_finalize},
    {"abort", IN(PMI1_BOUND) | IN(PMI1_READY) | IN(PMI1_FINAL), do_abort},
};

static const struct command *find_command(const struct pmi1_message *m)
{
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(commands[i].name, m->command) == 0 && m->multi == (commands[i].act == do_spawn))
            return &commands[i];
    return NULL;
}

void pmi1_command(struct pmi1_client *c, char *line, size_t len)
{
    struct pmi1_message m;
    struct err e = ERR_INIT;
    if (c->spawning) {
        line[len] = '\0';
        take_spawn_line(c, line);
        return;
    }
    const struct command *command = pmi1_parse(line, len, &m, &e) == 0 ? find_command(&m) : NULL;
    if (command && (command->phases & IN(c->phase))) {
        command->act(c, &m);
        return;
    }
    if (!e.code && !command)
        err_set(&e, ERR_PROTOCOL, "unknown command '%.40s'", m.command);
    else if (!e.code)
        err_set(&e, ERR_PROTOCOL, "'%s' is not possible now", command->name);
    if (c->phase == PMI1_UNIDENTIFIED)
        pmi1_notice(c->p, "a PMI-1 client: %s", e.text);
    else
        pmi1_notice(c->p, "a PMI-1 client (rank %u): %s", c->rank, e.text);
    pmi1_refuse(c, "error", e.text);
    if (c->phase == PMI1_UNIDENTIFIED)
        pmi1_client_close(c);
}
