/* --help for a terminal, and the words in which it and the manual page describe a row. A test writes the
 * list in the page, and compares the page with the table (tests/unit/mdoc.h). */
#include <inttypes.h>
#include <string.h>

#include "common/options/options_table.h"

#define WIDTH  80 /* of --help */
#define INDENT 28 /* column of the descriptions */

bool option_next_name(const char *column, struct option_name *name)
{
    const char *next = name->text ? name->text + name->len : column ? column : "";
    next += strspn(next, ", ");
    name->opposite = *next == '!';
    name->text = next + name->opposite;
    name->len = strcspn(name->text, ",");
    return name->len > 0;
}

void option_join_words(const char *words, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    while (*words && used < size) {
        size_t n = strcspn(words, "|");
        const char *rest = words[n] ? words + n + 1 : words + n;
        const char *between = !*rest ? "" : strchr(rest, '|') ? ", " : " or ";
        used += (size_t)snprintf(text + used, size - used, "%.*s%s", (int)n, words, between);
        words = rest;
    }
}

bool option_is_optional(const struct option_spec *spec)
{
    return spec->metavar && spec->metavar[0] == '[';
}

void option_wanted(const struct option_spec *spec, char *text, size_t size)
{
    char words[OPTION_WANTED_MAX / 2];
    const char *unit = spec->type == OPTION_SECONDS        ? "a number of seconds"
                       : spec->type == OPTION_MILLISECONDS ? "a number of milliseconds"
                                                           : "a number";
    option_join_words(spec->words ? spec->words : "", words, sizeof words);
    switch (spec->type) {
    case OPTION_INTEGER:
    case OPTION_SECONDS:
    case OPTION_MILLISECONDS:
        snprintf(text, size, "%s from %" PRId64 " to %" PRId64 "%s%s", unit, spec->min, spec->max,
                 *words ? ", or " : "", words);
        break;
    case OPTION_RANGE:
        snprintf(text, size, "two numbers of seconds from %" PRId64 " to %" PRId64 ", LOW,HIGH", spec->min,
                 spec->max);
        break;
    case OPTION_CHOICE:
    case OPTION_MODE:
        snprintf(text, size, "%s", words);
        break;
    case OPTION_FLAG:
    case OPTION_ACTION:
        snprintf(text, size, "1 or 0 (or true, yes, on, false, no, off)");
        break;
    case OPTION_TEXT:
    case OPTION_LIST:
        snprintf(text, size, "%s", spec->metavar);
        break;
    }
}

void option_facts(const struct option_spec *spec, char *text, size_t size)
{
    char range[OPTION_WANTED_MAX] = "", words[OPTION_WANTED_MAX / 2] = "";
    bool number = spec->type == OPTION_RANGE || spec->type == OPTION_INTEGER ||
                  spec->type == OPTION_SECONDS || spec->type == OPTION_MILLISECONDS;
    if (spec->words)
        option_join_words(spec->words, words, sizeof words);
    if (number)
        snprintf(range, sizeof range, "%" PRId64 " to %" PRId64 "%s", spec->min, spec->max,
                 *words ? ", or " : "");
    const char *before = !spec->default_text ? "" : *range || *words ? ", default " : "default ";
    snprintf(text, size, "%s%s%s%s", range, words, before, spec->default_text ? spec->default_text : "");
}

/* ---- --help -------------------------------------------------------------------------------------------- */

/* Writes the words of `text` from column `at` on, continued at column `indent`; returns the column after
 * them. */
static int print_wrapped(FILE *out, const char *text, int at, int indent)
{
    bool first = true;
    while (*(text += strspn(text, " "))) {
        int len = (int)strcspn(text, " ");
        if (!first && at + 1 + len > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        at += fprintf(out, "%s%.*s", first ? "" : " ", len, text);
        first = false;
        text += len;
    }
    return at;
}

void option_names(const char *column, const char *between, char *text, size_t size)
{
    struct option_name name = {0};
    size_t used = 0;
    text[0] = '\0';
    while (used < size && option_next_name(column, &name))
        used += (size_t)snprintf(text + used, size - used, "%s%.*s%s", used ? between : "", (int)name.len,
                                 name.text, name.opposite ? "=0" : "");
}

static void print_option(const struct option_spec *spec, FILE *out)
{
    const char *gap = spec->metavar && !option_is_optional(spec) ? " " : "";
    int at = fprintf(out, "  %s%s%s", spec->flags, gap, spec->metavar ? spec->metavar : "");
    if (at > INDENT - 2) {
        fputc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", INDENT - at, "");
    char facts[OPTION_WANTED_MAX];
    option_facts(spec, facts, sizeof facts);
    char names[OPTION_WANTED_MAX];
    option_names(spec->variable, ", ", names, sizeof names);
    char text[1536];
    if (*facts || *names)
        snprintf(text, sizeof text, "%s (%s%s%s)", spec->help, facts, *facts && *names ? "; " : "", names);
    else
        snprintf(text, sizeof text, "%s", spec->help);
    print_wrapped(out, text, INDENT, INDENT);
    fputc('\n', out);
}

void options_print_group(const struct options_program *program, const char *group, FILE *out)
{
    const char *last = "";
    for (size_t i = 0; i < program->count; i++) {
        const struct option_spec *spec = &program->spec[i];
        if (group && strcmp(spec->group, group) != 0)
            continue;
        if (strcmp(last, spec->group) != 0)
            fprintf(out, "\n%s:\n", spec->group);
        last = spec->group;
        print_option(spec, out);
    }
}

void options_print_help(const struct options_program *program, FILE *out)
{
    fprintf(out, "usage: %s %s\n\n", program->name, program->usage);
    print_wrapped(out, program->about, 0, 0);
    fputc('\n', out);
    options_print_group(program, NULL, out);
}
