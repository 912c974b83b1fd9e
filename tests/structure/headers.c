/* Headers with one user: what they declare could stand in that user's own files. The .c file of the same
 * name is not a user, nor are tests. */
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

static bool is_own_code(const struct source *header, const struct source *code)
{
    size_t len = strlen(header->path);
    return strlen(code->path) == len && strncmp(header->path, code->path, len - 1) == 0;
}

int count_one_user(const struct house *h, struct offenders *o)
{
    const struct tree *t = h->tree;
    int *users = calloc((size_t)t->sources, sizeof *users), found = 0;
    const struct source **last = calloc((size_t)t->sources, sizeof *last);
    for (int i = 0; i < t->sources; i++) {
        const struct source *s = &t->source[i];
        for (int k = 0; is_product(s->path) && k < s->includes; k++) {
            const struct source *header = tree_resolve(t, s, s->include[k]);
            if (!header || is_own_code(header, s))
                continue;
            users[header - t->source]++;
            last[header - t->source] = s;
        }
    }
    for (int i = 0; i < t->sources; i++) {
        const struct source *s = &t->source[i];
        if (!is_product(s->path) || !is_header(s->path) || users[i] > 1)
            continue;
        found++;
        if (last[i])
            offender_add(o, s->path, 0, 1, "only %s includes it", last[i]->path);
        else
            offender_add(o, s->path, 0, 1, "no other file includes it");
    }
    free(users);
    free(last);
    return found;
}
