/* One pass over the text of a source. */
#include "tests/structure/tokens.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "tests/structure/structure.h"

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The end of a preprocessor line and of the lines that continue it. */
static const char *skip_directive(const char *p, int *line)
{
    for (; *p && *p != '\n'; p++)
        if (p[0] == '\\' && p[1] == '\n') {
            *line += 1;
            p++;
        }
    return p;
}

static void add_token(struct tokens *t, size_t *capacity, struct token token)
{
    if (t->count + 1 >= *capacity) {
        *capacity = *capacity ? *capacity * 2 : 1024;
        t->item = grow(t->item, *capacity * sizeof *t->item);
    }
    t->item[t->count] = token;
    t->count += token.len > 0;
}

void tokens_read(struct tokens *t, const char *text)
{
    size_t capacity = 0;
    int line = 1;
    bool first = true; /* of its line */
    *t = (struct tokens){0};
    for (const char *p = text; *p;) {
        const char *from = p;
        if (*p == '#' && first) {
            p = skip_directive(p, &line);
        } else if (isspace((unsigned char)*p)) {
            line += *p == '\n';
            first = first || *p == '\n';
            p++;
        } else {
            do
                p++;
            while (is_word(*from) && is_word(*p));
            add_token(t, &capacity, (struct token){.at = from, .len = (int)(p - from), .line = line});
            first = false;
        }
    }
    add_token(t, &capacity, (struct token){.at = "", .line = line});
}

void tokens_free(struct tokens *t)
{
    free(t->item);
    *t = (struct tokens){0};
}

bool token_is(const struct token *t, const char *word)
{
    return strncmp(t->at, word, (size_t)t->len) == 0 && strlen(word) == (size_t)t->len;
}

bool token_is_name(const struct token *t)
{
    return t->len > 0 && is_word(*t->at) && !isdigit((unsigned char)*t->at);
}

bool token_begins_line(const struct token *t, const char *text)
{
    return t->at == text || t->at[-1] == '\n';
}

size_t tokens_close(const struct tokens *t, size_t open)
{
    int depth = 0;
    for (size_t i = open; i < t->count; i++) {
        char c = *t->item[i].at;
        depth += (c == '(' || c == '{' || c == '[') - (c == ')' || c == '}' || c == ']');
        if (depth <= 0)
            return i;
    }
    return t->count;
}
