#include "launcher/cli/list_options.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#include "common/process/spawn.h"

static const struct {
    const char *word;
    unsigned bits;
    bool alone;
} words[] = {
    {"auto", CONTRACTS_AUTO, false},    {"none", 0, true},
    {"env", CONTRACT_ENV, false},       {"pmix", CONTRACT_PMIX | CONTRACT_PMIX_NOW, false},
    {"pmi1", CONTRACT_PMI1, false},     {"gloo", CONTRACT_GLOO, false},
    {"jax", CONTRACT_JAX, false},       {"tf", CONTRACT_TF, false},
    {"paddle", CONTRACT_PADDLE, false},
};
#define WORDS (sizeof words / sizeof *words)

int contracts_parse(const char *text, unsigned *contracts, struct err *e)
{
    *contracts = 0;
    for (const char *at = text; at;) {
        size_t len = strcspn(at, ","), i = 0;
        while (i < WORDS && (strlen(words[i].word) != len || memcmp(words[i].word, at, len) != 0))
            i++;
        if (i == WORDS)
            return err_set(
                e, ERR_USAGE,
                "--rendezvous: '%.*s' is none of auto, none, env, pmix, pmi1, gloo, jax, tf and paddle",
                len < 80 ? (int)len : 80, at);
        if (words[i].alone && strchr(text, ','))
            return err_set(e, ERR_USAGE, "--rendezvous: '%s' stands alone, not in a list", words[i].word);
        *contracts |= words[i].bits;
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

/* ---- --propagate-limits -------------------------------------------------------------------------------- */

static void add_limit(struct propagate *p, const struct rlimit_name *name)
{
    struct rlimit limit;
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->limit[i].name, name->name) == 0)
            return;
    if (spawn_inherited_limit(name->resource, &limit) < 0)
        return;
    Hvd__ResourceLimit *to = p->list[p->count] = &p->limit[p->count];
    hvd__resource_limit__init(to);
    to->name = (char *)(uintptr_t)name->name;
    to->soft = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
    p->count++;
}

int propagate_read(struct propagate *p, const char *text, struct err *e)
{
    struct propagate ignored;
    p = p ? p : &ignored;
    p->count = 0;
    if (strcasecmp(text, "none") == 0)
        return 0;
    if (strcasecmp(text, "all") == 0) {
        for (size_t i = 0; i < RLIMITS_COUNT; i++)
            add_limit(p, &rlimit_names[i]);
        return 0;
    }
    for (const char *at = text; at;) {
        size_t len = strcspn(at, ",");
        const struct rlimit_name *name = rlimit_find(at, len);
        if (!name) {
            err_set(e, ERR_USAGE, "--propagate-limits: there is no limit '%.*s'", (int)len, at);
            return err_hint(e,
                            "all, none, or some of AS, CORE, CPU, DATA, FSIZE, MEMLOCK, NOFILE, NPROC, RSS "
                            "and STACK by comma");
        }
        add_limit(p, name);
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}
