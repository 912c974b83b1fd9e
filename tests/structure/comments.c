/* Strings and characters are stepped over: what looks like a comment in them is none. */
#include "tests/structure/comments.h"

#include <string.h>

static const char *skip_literal(const char *p, int *line)
{
    char quote = *p++;
    for (; *p && *p != quote && *p != '\n'; p++)
        if (*p == '\\' && p[1]) {
            *line += p[1] == '\n';
            p++;
        }
    return *p == quote ? p + 1 : p;
}

static const char *find_end(const char *p)
{
    const char *end = p[1] == '*' ? strstr(p + 2, "*/") : strchr(p, '\n');
    if (!end)
        return p + strlen(p);
    return p[1] == '*' ? end + 2 : end;
}

bool comment_next(const char **p, int *line, struct comment *c)
{
    const char *at = *p;
    while (*at && !(at[0] == '/' && (at[1] == '*' || at[1] == '/'))) {
        if (*at == '"' || *at == '\'') {
            at = skip_literal(at, line);
        } else {
            *line += *at == '\n';
            at++;
        }
    }
    *p = at;
    if (!*at)
        return false;
    *p = find_end(at);
    *c = (struct comment){.text = at, .len = (size_t)(*p - at), .line = *line};
    for (; at < *p; at++)
        *line += *at == '\n';
    return true;
}
