/* Fields of structs. A nested struct without a name of its own in the outer one gives its fields to the
 * outer one; with a name it is one field. Several names in one declaration are several fields. */
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

#define STRUCT_GOAL 30

/* The number of names in the declaration that begins at `i`; *end: the index after its semicolon. */
static int count_declaration(const struct tokens *t, size_t i, size_t *end);

/* Fields between the brace at `open` and the one that closes it. */
static int count_fields(const struct tokens *t, size_t open)
{
    size_t close = tokens_close(t, open);
    int fields = 0;
    for (size_t i = open + 1; i < close;)
        fields += count_declaration(t, i, &i);
    return fields;
}

static int count_declaration(const struct tokens *t, size_t i, size_t *end)
{
    bool is_enum = token_is(&t->item[i], "enum"), asserts = token_is(&t->item[i], "_Static_assert");
    int names = 1;
    for (; i < t->count && !token_is(&t->item[i], ";"); i++) {
        if (token_is(&t->item[i], "{")) {
            size_t close = tokens_close(t, i);
            if (token_is(&t->item[close + (close < t->count)], ";"))
                names = is_enum ? 0 : count_fields(t, i);
            i = close;
        } else if (token_is(&t->item[i], "(") || token_is(&t->item[i], "[")) {
            i = tokens_close(t, i);
        } else if (token_is(&t->item[i], ",")) {
            names++;
        } else if (token_is(&t->item[i], "}")) {
            names = 0; /* a macro without a semicolon at the end of the struct */
            break;
        }
    }
    *end = i + 1;
    return asserts ? 0 : names;
}

static int count_structs(const struct source *s, const struct tokens *t, struct offenders *o)
{
    int widest = 0;
    for (size_t i = 0; i + 1 < t->count; i++) {
        if (!token_is(&t->item[i], "struct"))
            continue;
        const struct token *name = &t->item[i + 1];
        size_t open = token_is_name(name) ? i + 2 : i + 1;
        if (!token_is(&t->item[open], "{"))
            continue;
        if (open == i + 1)
            name = &t->item[tokens_close(t, open)] + 1;
        int fields = count_fields(t, open);
        widest = fields > widest ? fields : widest;
        if (fields > STRUCT_GOAL)
            offender_add(o, s->path, t->item[i].line, fields, "struct %.*s has %d fields", name->len,
                         name->at, fields);
    }
    return widest;
}

int count_widest_struct(const struct house *h, struct offenders *o)
{
    int widest = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        int fields = count_structs(&h->tree->source[i], &h->tokens[i], o);
        widest = fields > widest ? fields : widest;
    }
    return widest;
}
