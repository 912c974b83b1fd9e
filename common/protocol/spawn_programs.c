#include "common/protocol/spawn_programs.h"

#include <string.h>

struct spawn_program spawn_program_get(const Hvd__Spawn *s, size_t i)
{
    uint32_t end = i < s->n_program ? s->program[i]->first_rank : s->size;
    if (i == 0)
        return (struct spawn_program){s->argv, s->n_argv, s->env,       s->n_env,  s->wdir,
                                      0,       end,       s->preloaded, s->or_home};
    const Hvd__Program *p = s->program[i - 1];
    return (struct spawn_program){p->argv,       p->n_argv,           p->env,       p->n_env,  p->wdir,
                                  p->first_rank, end - p->first_rank, p->preloaded, p->or_home};
}

size_t spawn_program_of(const Hvd__Spawn *s, uint32_t rank)
{
    size_t i = s->n_program;
    while (i > 0 && s->program[i - 1]->first_rank > rank)
        i--;
    return i;
}

bool spawn_program_is_here(const Hvd__Spawn *s, size_t i)
{
    struct spawn_program p = spawn_program_get(s, i);
    for (size_t k = 0; k < s->n_worker; k++)
        if (s->worker[k]->rank - p.first < p.ranks)
            return true;
    return false;
}

int spawn_programs_check(const Hvd__Spawn *s, struct err *e)
{
    uint32_t before = 0;
    for (size_t i = 0; i < s->n_program; before = s->program[i++]->first_rank)
        if (s->program[i]->first_rank <= before || s->program[i]->first_rank >= s->size)
            return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has program %zu from rank %u on, in vain",
                           i + 1, s->program[i]->first_rank);
    for (size_t i = 0; i < spawn_programs(s); i++) {
        struct spawn_program p = spawn_program_get(s, i);
        if (p.n_argv == 0)
            return err_set(e, ERR_PROTOCOL, "the launcher's Spawn is not complete");
        for (size_t k = 0; k < p.n_env; k++)
            if (!strchr(p.env[k], '='))
                return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has a variable without a value");
    }
    return 0;
}
