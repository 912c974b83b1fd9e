#include "launcher/cli/rendezvous_option.h"

#include <stdbool.h>
#include <string.h>

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
