/* A definition is found by its shape: at the top level of a file, a name, its parameters in brackets, then a
 * brace. The body ends at the brace in the first column, where the format has it: branches of #if that open a
 * block twice and close it once do no harm. */
#include "tests/structure/functions.h"

#include <stdlib.h>
#include <string.h>

/* The token that names the function whose body follows the tokens [from, to); NULL when they are no
 * function: a struct, an enum, a table. The name stands before the last brackets; macros and attributes
 * may stand before. */
static const struct token *find_name(const struct tokens *t, size_t from, size_t to)
{
    const struct token *name = NULL;
    if (from == to || !token_is(&t->item[to - 1], ")"))
        return NULL;
    for (size_t i = from; i < to; i++) {
        const struct token *token = &t->item[i];
        if (token_is(token, "="))
            return NULL;
        if (!token_is(token, "("))
            continue;
        const struct token *before = i > from ? token - 1 : token;
        if (token_is_name(before) && !token_is(before, "__attribute__") && !token_is(before, "_Alignas"))
            name = before;
        /* A function that returns a pointer to a function: void (*name(...))(...). */
        if (token_is(token + 1, "*") && token_is_name(token + 2) && token_is(token + 3, "("))
            return token + 2;
        i = tokens_close(t, i);
    }
    return name;
}

static bool has_word(const struct tokens *t, size_t from, size_t to, const char *word)
{
    for (size_t i = from; i < to; i++)
        if (token_is(&t->item[i], word))
            return true;
    return false;
}

/* The index of the brace in the first column that ends what `open` begins. */
static size_t find_end(const struct source *s, const struct tokens *t, size_t open)
{
    for (size_t i = open; i < t->count; i++)
        if (token_is(&t->item[i], "}") && token_begins_line(&t->item[i], s->text))
            return i;
    return tokens_close(t, open);
}

static void add_function(struct functions *f, struct function one)
{
    if ((f->count & (f->count - 1)) == 0)
        f->item = grow(f->item, sizeof *f->item * (f->count ? f->count * 2 : 1));
    f->item[f->count++] = one;
}

void functions_read(struct functions *f, const struct source *s, const struct tokens *t)
{
    size_t from = 0;
    for (size_t i = 0; i < t->count; i++) {
        if (token_is(&t->item[i], ";"))
            from = i + 1;
        if (!token_is(&t->item[i], "{"))
            continue;
        const struct token *name = find_name(t, from, i);
        size_t end = name ? find_end(s, t, i) : tokens_close(t, i);
        if (name) {
            add_function(f, (struct function){.file = s,
                                              .name = strndup(name->at, (size_t)name->len),
                                              .line = name->line,
                                              .lines = t->item[end].line - name->line + 1,
                                              .is_static = has_word(t, from, i, "static"),
                                              .from = i,
                                              .to = end});
            from = end + 1;
        }
        i = end;
    }
}

void functions_free(struct functions *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->item[i].name);
    free(f->item);
    *f = (struct functions){0};
}
