/* All that the measures need to know of a tree, read once. */
#include <stdlib.h>

#include "tests/structure/measures.h"

void house_read(struct house *h, const struct tree *t)
{
    *h = (struct house){.tree = t, .tokens = calloc((size_t)t->sources, sizeof *h->tokens)};
    for (int i = 0; i < t->sources; i++) {
        if (!is_product(t->source[i].path))
            continue;
        tokens_read(&h->tokens[i], t->source[i].text);
        functions_read(&h->functions, &t->source[i], &h->tokens[i]);
    }
    calls_read(&h->calls, t, &h->functions, h->tokens);
}

void house_free(struct house *h)
{
    for (int i = 0; i < h->tree->sources; i++)
        tokens_free(&h->tokens[i]);
    free(h->tokens);
    functions_free(&h->functions);
    calls_free(&h->calls);
}
