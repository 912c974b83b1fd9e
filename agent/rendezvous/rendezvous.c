#include "agent/rendezvous/rendezvous.h"

#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_client/detect.h"
#include "common/protocol/spawn_programs.h"

static const struct rendezvous_method *const contracts[RENDEZVOUS_METHODS] = {
    &rendezvous_pmix, &rendezvous_pmi1, &rendezvous_gloo};

static const char *search_path(const struct spawn_program *program)
{
    for (size_t i = 0; i < program->n_env; i++)
        if (strncmp(program->env[i], "PATH=", 5) == 0)
            return program->env[i] + 5;
    return getenv("PATH");
}

bool rendezvous_detects(const struct rendezvous *r,
                        bool (*detect)(char *const *argv, const char *search, const char *wdir))
{
    for (size_t i = 0; i < spawn_programs(r->spawn); i++) {
        struct spawn_program program = spawn_program_get(r->spawn, i);
        if (r->wdir[i] && detect(program.argv, search_path(&program), r->wdir[i]))
            return true;
    }
    return false;
}

int rendezvous_open(struct rendezvous *r, struct err *e)
{
    if ((r->spawn->contracts & CONTRACT_NO_MPI) && rendezvous_detects(r, detect_mpi)) {
        err_set(e, ERR_USAGE, "the program uses MPI or PMIx, which an elastic job cannot serve");
        return err_hint(e, "--rendezvous env starts it anyway, for a program that makes no use of it");
    }
    memset(r->state, 0, sizeof r->state);
    r->end = calloc(r->spawn->size, sizeof *r->end);
    if (!r->end)
        return err_set(e, ERR_MEMORY, "no memory for %u ranks", r->spawn->size);
    for (size_t i = 0; i < RENDEZVOUS_METHODS; i++) {
        if (!contracts[i] || !(r->spawn->contracts & contracts[i]->bit))
            continue;
        r->state[i] = contracts[i]->open(r, e);
        if (!r->state[i])
            return -1;
    }
    return 0;
}

void rendezvous_rank_ended(struct rendezvous *r, uint32_t rank, const char *how)
{
    if (!r->end || rank >= r->spawn->size || r->end[rank])
        return;
    r->end[rank] = strdup(how);
    for (size_t i = 0; i < RENDEZVOUS_METHODS && r->end[rank]; i++)
        if (r->state[i])
            contracts[i]->rank_ended(r->state[i], rank);
}

void rendezvous_close(struct rendezvous *r)
{
    for (size_t i = 0; i < RENDEZVOUS_METHODS; i++) {
        if (r->state[i])
            contracts[i]->close(r->state[i]);
        r->state[i] = NULL;
    }
    for (uint32_t i = 0; r->end && i < r->spawn->size; i++)
        free(r->end[i]);
    free(r->end);
    r->end = NULL;
}
