/* Tables in comments that were joined into prose, as a formatter does. A table is a group of lines that
 * are indented further than the comment's prose; an empty line stands before it and after it:
 *
 *   READING    the frame comes
 *   DECIDING   a lease is written,
 *              or the client is refused
 *
 * Broken is a comment
 *
 *   - whose table is followed by prose in the next line: the rest of a row has lost its indentation;
 *   - whose prose has two blanks between two words: a row has become a part of it;
 *   - that begins with a rule (----) and ends on the next line.
 *
 * A comment beside code has no prose of its own: its lines only may not have two blanks between two words,
 * but in the first. */
#include <ctype.h>
#include <string.h>

#include "tests/structure/comments.h"
#include "tests/structure/measures.h"

#define COLUMNS 110

/* A line of a comment, without what every line has: the sign at its beginning, the closing sign, blanks at
 * the end. */
struct line {
    const char *text;
    int len;    /* 0: empty */
    int indent; /* blanks behind the sign */
    bool sign;
};

static struct line read_line(const char *p, const char *end, bool first)
{
    struct line l = {.sign = first};
    const char *stop = memchr(p, '\n', (size_t)(end - p));
    stop = stop ? stop : end - (end - p >= 2 && end[-2] == '*');
    if (!first) {
        while (p < stop && *p == ' ')
            p++;
        l.sign = p < stop && *p == '*';
        p += l.sign;
    }
    for (; p < stop && *p == ' '; p++)
        l.indent++;
    while (stop > p && (isspace((unsigned char)stop[-1]) || (stop == end - 1 && stop[-1] == '*')))
        stop--;
    l.text = p;
    l.len = (int)(stop - p);
    return l;
}

static bool has_gap(const struct line *l)
{
    for (int i = 1; i + 1 < l->len; i++)
        if (l->text[i - 1] != ' ' && l->text[i] == ' ' && l->text[i + 1] == ' ')
            return true;
    return false;
}

/* The fault of a line that is not the first, after the line before it; NULL: none. */
static const char *find_fault(const struct line *l, const struct line *before)
{
    bool prose = !l->sign || l->indent <= 1;
    if (l->sign && l->indent == 1 && l->len > 0 && before->sign && before->indent > 1 && before->len > 0)
        return "prose goes on from a row of the table above; an empty line belongs between them";
    if (prose && has_gap(l))
        return "a row of a table stands in prose";
    return NULL;
}

static bool is_open_rule(const struct comment *c)
{
    const char *end = c->text + c->len, *p = memchr(c->text, '\n', c->len);
    bool begins = c->len > 7 && strncmp(c->text + 2, " ----", 5) == 0;
    while (p && p < end && strchr(" \n*-/", *p))
        p++;
    return begins && p == end;
}

static int check_tables(const struct source *s, const struct comment *c, struct offenders *o)
{
    const char *end = c->text + c->len, *p = c->text + 2;
    int number = c->line;
    struct line before = {0};
    if (is_open_rule(c)) {
        offender_add(o, s->path, number, 1, "the rule ends on another line");
        return 1;
    }
    for (bool first = true; p < end; first = false, number++) {
        struct line l = read_line(p, end, first);
        const char *fault = first ? NULL : find_fault(&l, &before);
        if (fault) {
            offender_add(o, s->path, number, 1, "%s", fault);
            return 1;
        }
        before = l;
        const char *next = memchr(p, '\n', (size_t)(end - p));
        p = next ? next + 1 : end;
    }
    return 0;
}

/* The formatter keeps code within COLUMNS and leaves comments alone: here are the lines with comments. */
static int check_columns(const struct source *s, const struct comment *c, struct offenders *o)
{
    const char *end = c->text + c->len, *line = c->text;
    int found = 0;
    while (line > s->raw && line[-1] != '\n')
        line--;
    for (int number = c->line; line < end; number++) {
        size_t len = strcspn(line, "\n");
        int columns = count_columns(line, len);
        if (columns > COLUMNS) {
            found++;
            offender_add(o, s->path, number, 1, "%d columns", columns);
        }
        line += len + 1;
    }
    return found;
}

static int count_tree(const struct house *h, struct offenders *o,
                      int (*count)(const struct source *s, const struct comment *c, struct offenders *o))
{
    int found = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        const char *p = s->raw;
        struct comment c;
        int line = 1;
        while (comment_next(&p, &line, &c))
            found += count(s, &c, o);
    }
    return found;
}

int count_broken_tables(const struct house *h, struct offenders *o)
{
    return count_tree(h, o, check_tables);
}

int count_wide_comments(const struct house *h, struct offenders *o)
{
    return count_tree(h, o, check_columns);
}
