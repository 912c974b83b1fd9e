/* One group of a list is a text with brackets in it. It is written out from the left: what stands before the
 * first bracket becomes a prefix, then each number of the bracket is put behind it and the rest of the group
 * follows in the same way. So the last bracket counts fastest, which is Slurm's own order, and the numbers of
 * tasks that Slurm gives in that order fit.
 *
 * The number of names has a limit, and so has the number of brackets: a short text cannot ask for endless
 * work. */
#include "launcher/allocation/nodelist.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "launcher/plan/hosts.h"

#define SHOWN 80

struct expansion {
    const char *text, *from;
    struct buf *names;
    size_t *count;
    struct err *e;
    char name[HOSTS_NAME_MAX + 1];
};

static int refuse_list(const struct expansion *x, const char *at, const char *why)
{
    return err_set(x->e, ERR_USAGE, "%s: '%.*s', byte %zu: %s", x->from, SHOWN, x->text,
                   (size_t)(at - x->text) + 1, why);
}

/* Digits at *at, before `end`; moves behind them. 0 when there are none or too many. */
static size_t read_number(const char **at, const char *end, uint32_t *value)
{
    size_t len = 0;
    *value = 0;
    while (*at + len < end && isdigit((unsigned char)(*at)[len]) && len <= NODELIST_DIGITS_MAX)
        *value = *value * 10 + (uint32_t)((*at)[len++] - '0');
    *at += len;
    return len <= NODELIST_DIGITS_MAX ? len : 0;
}

static int emit_name(struct expansion *x, const char *at, size_t len)
{
    if (!len)
        return refuse_list(x, at, "the name of a host is empty");
    if (++*x->count > HOSTS_MAX)
        return refuse_list(x, at, "the list has more than 65536 hosts");
    if (buf_put(x->names, x->name, len) < 0 || buf_put(x->names, "", 1) < 0)
        return err_set(x->e, ERR_MEMORY, "no memory for the list of hosts");
    return 0;
}

_Static_assert(HOSTS_MAX == 65536, "the message says so");

/* The end of the bracket's inside that begins at `at`, or NULL. */
static const char *find_closing(const char *at, const char *end)
{
    size_t len = strcspn(at, "[]");
    return at + len < end && at[len] == ']' ? at + len : NULL;
}

/* The rest of a group from `at` to `end`, behind the `len` bytes of the name that are there already. */
static int expand_ranges(struct expansion *x, const char *at, const char *end, size_t len, int brackets)
{
    for (; at < end && *at != '['; at++) {
        if (*at == ']')
            return refuse_list(x, at, "']' without '['");
        if (len >= HOSTS_NAME_MAX)
            return refuse_list(x, at, "the name of a host is longer than 255 bytes");
        x->name[len++] = *at;
    }
    if (at == end)
        return emit_name(x, at, len);
    const char *close = find_closing(at + 1, end);
    if (!close)
        return refuse_list(x, at, "']' is missing");
    if (brackets == NODELIST_BRACKETS_MAX)
        return refuse_list(x, at, "more than 8 brackets in one name");
    for (const char *p = at + 1;; p++) {
        uint32_t low, high;
        const char *start = p;
        size_t width = read_number(&p, close, &low);
        high = low;
        if (!width || (*p == '-' && (p++, !read_number(&p, close, &high))))
            return refuse_list(x, p, "a number of at most 9 digits is expected in the brackets");
        if (high < low)
            return refuse_list(x, start, "the range runs backwards");
        if (p < close && *p != ',')
            return refuse_list(x, p, "',', '-' or ']' is expected in the brackets");
        for (uint32_t v = low; v <= high; v++) {
            int n = snprintf(x->name + len, sizeof x->name - len, "%0*u", (int)width, v);
            if ((size_t)n >= sizeof x->name - len)
                return refuse_list(x, start, "the name of a host is longer than 255 bytes");
            if (expand_ranges(x, close + 1, end, len + (size_t)n, brackets + 1))
                return -1;
        }
        if (p == close)
            return 0;
    }
}

_Static_assert(NODELIST_BRACKETS_MAX == 8 && NODELIST_DIGITS_MAX == 9 && HOSTS_NAME_MAX == 255,
               "the messages say so");

/* The comma after the group that begins at `at`, outside of brackets, or the end of the text. */
static const char *group_end(const char *at)
{
    for (;;) {
        at += strcspn(at, ",[");
        if (*at != '[')
            return at;
        at += strcspn(at, "]");
    }
}

int nodelist_expand(const char *text, const char *from, struct buf *names, size_t *count, struct err *e)
{
    struct expansion x = {.text = text, .from = from, .names = names, .count = count, .e = e};
    for (const char *at = text;;) {
        const char *end = group_end(at);
        if (expand_ranges(&x, at, end, 0, 0))
            return -1;
        if (!*end)
            return 0;
        at = end + 1;
    }
}

int nodelist_counts(const char *text, const char *from, uint32_t *counts, size_t count, struct err *e)
{
    struct expansion x = {.text = text, .from = from, .e = e};
    const char *at = text, *end = text + strlen(text);
    size_t have = 0;
    for (;;) {
        const char *start = at;
        uint32_t value, times = 1;
        if (!read_number(&at, end, &value) || !value || value > HOSTS_SLOTS_MAX)
            return refuse_list(&x, start, "a number from 1 to 1000000 is expected");
        if (strncmp(at, "(x", 2) == 0) {
            at += 2;
            if (!read_number(&at, end, &times) || !times || *at++ != ')')
                return refuse_list(&x, start, "after a number may stand how often it is meant, as in 4(x2)");
        }
        if (times > count - have)
            return err_set(e, ERR_USAGE, "%s: '%.*s' is for more hosts than the %zu of the job", from, SHOWN,
                           text, count);
        while (times--)
            counts[have++] = value;
        if (at == end)
            break;
        if (*at++ != ',')
            return refuse_list(&x, at - 1, "',' is expected");
    }
    if (have < count)
        return err_set(e, ERR_USAGE, "%s: '%.*s' is for %zu hosts, the job has %zu", from, SHOWN, text, have,
                       count);
    return 0;
}
