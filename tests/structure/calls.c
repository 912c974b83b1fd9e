/* The graph of calls.
 *
 * A call is the name of an external function with a bracket after it, in the body of a function of another
 * file. A name without a bracket is no call: a callback that is given to another file, or a row of a
 * table, is the way to let the lower file not know the upper one, and the lower file calls it through a
 * pointer. For the same reason `events->ready(...)` is no call. Static functions hide external functions
 * of the same name in their file.
 *
 * Nothing here knows which files make a program. Two programs may define a function of the same name: the
 * call means the definition whose folder is nearest to that of the caller. Programs do not call one
 * another, so every circle lies within a program. */
#include "tests/structure/calls.h"

#include <stdlib.h>
#include <string.h>

/* The external functions by name, and for each file the file that it counts as. */
struct index {
    const struct function **external;
    size_t count;
    int *unit;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const struct function *const *)a)->name, (*(const struct function *const *)b)->name);
}

static void index_functions(struct index *x, const struct functions *f)
{
    x->external = grow(NULL, sizeof *x->external * (f->count + 1));
    x->count = 0;
    for (size_t i = 0; i < f->count; i++)
        if (!f->item[i].is_static || is_header(f->item[i].file->path))
            x->external[x->count++] = &f->item[i];
    qsort(x->external, x->count, sizeof *x->external, compare_names);
}

static void index_units(struct index *x, const struct tree *t)
{
    x->unit = grow(NULL, sizeof *x->unit * (size_t)(t->sources + 1));
    for (int i = 0; i < t->sources; i++) {
        char *path = strdup(t->source[i].path);
        path[strlen(path) - 1] = 'c';
        const struct source *own = is_product(path) ? tree_find(t, path) : NULL;
        x->unit[i] = own ? (int)(own - t->source) : i;
        free(path);
    }
}

/* Characters of the folders that both paths begin with. */
static size_t common_folders(const char *a, const char *b)
{
    size_t same = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '/')
            same = i + 1;
    return same;
}

static int compare_token(const struct token *t, const char *name)
{
    int order = strncmp(t->at, name, (size_t)t->len);
    return order ? order : -(name[t->len] != '\0');
}

/* The external function that `name` means in a file, or NULL. */
static const struct function *find_called(const struct index *x, const struct token *name, const char *caller)
{
    size_t low = 0, high = x->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compare_token(name, x->external[middle]->name) > 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct function *best = NULL;
    size_t nearest = 0;
    for (; low < x->count && token_is(name, x->external[low]->name); low++) {
        size_t near = common_folders(caller, x->external[low]->file->path);
        if (!best || near > nearest) {
            best = x->external[low];
            nearest = near;
        }
    }
    return best;
}

/* Whether the file of function `i` defines a function of that name itself. */
static bool defines_itself(const struct functions *f, size_t i, const struct token *name)
{
    const struct source *file = f->item[i].file;
    while (i > 0 && f->item[i - 1].file == file)
        i--;
    for (; i < f->count && f->item[i].file == file; i++)
        if (token_is(name, f->item[i].name))
            return true;
    return false;
}

static bool is_call(const struct token *t)
{
    bool member = token_is(t - 1, ".") || (token_is(t - 1, ">") && t[-1].at[-1] == '-');
    return token_is_name(t) && token_is(t + 1, "(") && !member;
}

static void add_call(struct calls *c, struct call one)
{
    if ((c->count & (c->count - 1)) == 0)
        c->item = grow(c->item, sizeof *c->item * (c->count ? c->count * 2 : 1));
    c->item[c->count++] = one;
}

static int compare_calls(const void *a, const void *b)
{
    const struct call *x = a, *y = b;
    if (x->from != y->from)
        return x->from - y->from;
    if (x->to != y->to)
        return x->to - y->to;
    int order = strcmp(x->called->name, y->called->name);
    return order ? order : x->line - y->line;
}

void calls_read(struct calls *c, const struct tree *tree, const struct functions *f,
                const struct tokens *tokens)
{
    struct index x;
    *c = (struct calls){0};
    index_functions(&x, f);
    index_units(&x, tree);
    for (size_t i = 0; i < f->count; i++) {
        const struct function *caller = &f->item[i];
        const struct token *token = tokens[caller->file - tree->source].item;
        int from = x.unit[caller->file - tree->source];
        for (size_t k = caller->from + 1; k < caller->to; k++) {
            if (!is_call(&token[k]))
                continue;
            const struct function *called = find_called(&x, &token[k], caller->file->path);
            int to = called ? x.unit[called->file - tree->source] : from;
            if (to != from && !defines_itself(f, i, &token[k]))
                add_call(c, (struct call){.from = from,
                                          .to = to,
                                          .called = called,
                                          .file = caller->file,
                                          .line = token[k].line});
        }
    }
    if (c->count > 0)
        qsort(c->item, c->count, sizeof *c->item, compare_calls);
    free(x.external);
    free(x.unit);
}

void calls_free(struct calls *c)
{
    free(c->item);
    *c = (struct calls){0};
}
