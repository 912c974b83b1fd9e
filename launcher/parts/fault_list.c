#include "launcher/parts/fault_list.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

#define COLUMNS 80
#define PREFIX  "hvdrun: "
#define INDENT  2 /* of what belongs to the line above */

bool faults_are_alike(const struct fault *a, const struct fault *b)
{
    return strcmp(a->what, b->what) == 0 && strcmp(a->why, b->why) == 0 && strcmp(a->fix, b->fix) == 0;
}

/* ---- names --------------------------------------------------------------------------------------------- */

struct names {
    char *text;
    size_t size, used, left_out;
};

static void add_name(struct names *n, const char *name)
{
    if (n->left_out > 0 || n->used + strlen(name) + sizeof ", and 4294967295 more" > n->size)
        n->left_out++;
    else
        n->used += (size_t)snprintf(n->text + n->used, n->size - n->used, "%s%s", n->used ? ", " : "", name);
}

static void end_names(struct names *n)
{
    if (n->left_out > 0)
        snprintf(n->text + n->used, n->size - n->used, " and %zu more", n->left_out);
}

void faults_name_hosts(const struct fault *f, size_t count, char *text, size_t size)
{
    struct names n = {.text = text, .size = size};
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(f[i - 1].host, f[i].host) != 0)
            add_name(&n, f[i].host);
    end_names(&n);
}

/* ---- lines --------------------------------------------------------------------------------------------- */

/* How much of the text fits into so much room: up to a space, else up to a colon of a list of folders. */
static size_t line_length(const char *text, size_t room)
{
    size_t len = strlen(text), at = room;
    if (len <= room)
        return len;
    while (at > 0 && text[at] != ' ')
        at--;
    if (at > 0)
        return at;
    for (at = room - 1; at > 0 && text[at] != ':'; at--)
        ;
    return at > 0 ? at + 1 : strcspn(text, " ");
}

static void say_wrapped(int indent, const char *text)
{
    for (int more = 0; *text; more = INDENT) {
        size_t n = line_length(text, (size_t)(COLUMNS - (int)strlen(PREFIX) - indent - more));
        log_say(PREFIX "%*s%.*s\n", indent + more, "", (int)n, text);
        text += n + strspn(text + n, " ");
    }
}

/* The hosts with the fault of f[first], if no fault before it is the same. */
static bool name_alike(const struct fault *f, size_t count, size_t first, char *text, size_t size)
{
    struct names n = {.text = text, .size = size};
    text[0] = '\0';
    for (size_t i = 0; i < first; i++)
        if (faults_are_alike(&f[i], &f[first]))
            return false;
    for (size_t i = first; i < count; i++)
        if (faults_are_alike(&f[i], &f[first]))
            add_name(&n, f[i].host);
    end_names(&n);
    return true;
}

void faults_say(const struct fault *f, size_t count)
{
    char names[FAULTS_NAMES_MAX], line[FAULTS_NAMES_MAX + 1200];
    faults_name_hosts(f, count, names, sizeof names);
    snprintf(line, sizeof line, "what is wrong on %s:", names);
    say_wrapped(0, line);
    for (size_t i = 0; i < count; i++) {
        if (!name_alike(f, count, i, names, sizeof names))
            continue;
        snprintf(line, sizeof line, "%s (%s): %s", names, f[i].what, f[i].why);
        say_wrapped(INDENT, line);
        say_wrapped(2 * INDENT, f[i].fix);
    }
}
