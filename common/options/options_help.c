/* --help for a terminal, and the list of options for the manual page (options.h). Both describe a row in the
 * same words; a test compares the page with this table. */
#include <inttypes.h>
#include <string.h>

#include "common/options/options_table.h"

#define WIDTH      80 /* of --help */
#define INDENT     28 /* column of the descriptions */
#define MDOC_WIDTH 78

bool option_next_name(const char *column, struct option_name *name)
{
    const char *next = name->text ? name->text + name->len : column ? column : "";
    next += strspn(next, ", ");
    name->opposite = *next == '!';
    name->text = next + name->opposite;
    name->len = strcspn(name->text, ",");
    return name->len > 0;
}

/* "none, rank or host" for "none|rank|host". */
static void join_words(const char *words, char *text, size_t size)
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
    join_words(spec->words ? spec->words : "", words, sizeof words);
    switch (spec->type) {
    case OPTION_INTEGER:
    case OPTION_SECONDS:
    case OPTION_MILLISECONDS:
        snprintf(text, size, "%s from %" PRId64 " to %" PRId64 "%s%s", unit, spec->min, spec->max,
                 *words ? ", or " : "", words);
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

/* Range and default of the table, besides the help text: "1 to 86400, default 30". Empty when it has none. */
static void option_facts(const struct option_spec *spec, char *text, size_t size)
{
    char range[OPTION_WANTED_MAX] = "", words[OPTION_WANTED_MAX / 2] = "";
    bool number =
        spec->type == OPTION_INTEGER || spec->type == OPTION_SECONDS || spec->type == OPTION_MILLISECONDS;
    if (spec->words)
        join_words(spec->words, words, sizeof words);
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

/* "A, B" as it is, or with `before` ahead of each name; a name that means the opposite as NAME=0. */
static void names_text(const char *column, const char *before, const char *between, char *text, size_t size)
{
    struct option_name name = {0};
    size_t used = 0;
    text[0] = '\0';
    while (used < size && option_next_name(column, &name))
        used += (size_t)snprintf(text + used, size - used, "%s%s%.*s%s", used ? between : "", before,
                                 (int)name.len, name.text, name.opposite ? "=0" : "");
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
    names_text(spec->variable, "", ", ", names, sizeof names);
    char text[1536];
    if (*facts || *names)
        snprintf(text, sizeof text, "%s (%s%s%s)", spec->help, facts, *facts && *names ? "; " : "", names);
    else
        snprintf(text, sizeof text, "%s", spec->help);
    print_wrapped(out, text, INDENT, INDENT);
    fputc('\n', out);
}

/* `group`: NULL for all. */
static void print_options(const struct options_program *program, const char *group, FILE *out)
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
    print_options(program, NULL, out);
}

void options_print_group(const struct options_program *program, const char *group, FILE *out)
{
    print_options(program, group, out);
}

/* ---- the manual page ----------------------------------------------------------------------------------- */

/* One word, so that roff reads it as text: no control character in front, dashes of options as typed ones. */
static int print_mdoc_word(const char *word, size_t len, bool line_start, FILE *out)
{
    int printed = 0;
    if (line_start && (*word == '.' || *word == '\''))
        printed += fprintf(out, "\\&");
    for (size_t i = 0; i < len; i++)
        printed += word[i] == '\\'  ? fprintf(out, "\\e")
                   : word[i] == '-' ? fprintf(out, "\\-")
                                    : fprintf(out, "%c", word[i]);
    return printed;
}

/* Text in lines of at most MDOC_WIDTH, a new line for every sentence as mdoc wants it. */
static void print_mdoc_text(const char *text, FILE *out)
{
    int at = 0;
    while (*(text += strspn(text, " "))) {
        size_t len = strcspn(text, " ");
        if (at && at + 1 + 2 * (int)len > MDOC_WIDTH) {
            fputc('\n', out);
            at = 0;
        }
        if (at)
            at += fprintf(out, " ");
        at += print_mdoc_word(text, len, at == 0, out);
        text += len;
        if (text[-1] == '.' && *text) {
            fputc('\n', out);
            at = 0;
        }
    }
    fputc('\n', out);
}

/* The end of an option's text: range, default, variables. */
static void print_mdoc_facts(const struct option_spec *spec, const char *column, const char *macro, FILE *out)
{
    char facts[OPTION_WANTED_MAX];
    option_facts(spec, facts, sizeof facts);
    char names[OPTION_WANTED_MAX];
    names_text(column, "", " , ", names, sizeof names);
    if (*facts && *names)
        fprintf(out, ".Pq %s ; %s %s\n", facts, macro, names);
    else if (*facts || *names)
        fprintf(out, ".Pq %s%s%s\n", *facts ? facts : macro, *facts ? "" : " ", *facts ? "" : names);
}

static void print_mdoc_option(const struct option_spec *spec, FILE *out)
{
    struct option_name flag = {0};
    const char *between = ".It Fl ";
    while (option_next_name(spec->flags, &flag)) {
        fprintf(out, "%s%.*s", between, (int)flag.len - 1, flag.text + 1);
        between = " , Fl ";
    }
    fprintf(out, "%s%s%s\n",
            !spec->metavar             ? ""
            : option_is_optional(spec) ? " Ns "
                                       : " ",
            spec->metavar ? "Ar " : "", spec->metavar ? spec->metavar : "");
    print_mdoc_text(spec->help, out);
    print_mdoc_facts(spec, spec->variable, "Ev", out);
}

static const char *type_text(const struct option_spec *spec)
{
    switch (spec->type) {
    case OPTION_FLAG:
    case OPTION_ACTION:
        return "true or false";
    case OPTION_LIST:
        return "a list";
    case OPTION_INTEGER:
        return "a number";
    case OPTION_SECONDS:
        return "seconds";
    case OPTION_MILLISECONDS:
        return "milliseconds";
    default:
        return "a text";
    }
}

/* A key or variable with its type, and the option whose page says the rest. */
static void print_mdoc_name(const struct option_spec *spec, const char *column, const char *macro, FILE *out)
{
    struct option_name name = {0}, flag = {0};
    while (option_next_name(column, &name))
        fprintf(out, "%s%s %.*s%s", name.text == column || name.text == column + 1 ? ".It " : " , ", macro,
                (int)name.len, name.text, name.opposite ? " Pq the opposite" : "");
    char facts[OPTION_WANTED_MAX];
    option_facts(spec, facts, sizeof facts);
    option_next_name(spec->flags, &flag);
    for (struct option_name next = flag; option_next_name(spec->flags, &next);)
        flag = next; /* the long one */
    fprintf(out, "\n%s%s%s, as\n.Fl %.*s\n", type_text(spec), *facts ? ": " : "", facts, (int)flag.len - 1,
            flag.text + 1);
}

enum list { OPTIONS, KEYS, VARIABLES };

/* The options, or the keys or variables, by group. */
static void print_mdoc(const struct options_program *program, enum list list, FILE *out)
{
    const char *group = "";
    for (size_t i = 0; i < program->count; i++) {
        const struct option_spec *spec = &program->spec[i];
        const char *column = list == KEYS ? spec->yaml : list == VARIABLES ? spec->variable : spec->flags;
        if (!column)
            continue;
        if (strcmp(group, spec->group) != 0)
            fprintf(out, "%s.Ss %s\n.Bl -tag -width Ds\n", *group ? ".El\n" : "", spec->group);
        group = spec->group;
        if (list == OPTIONS)
            print_mdoc_option(spec, out);
        else
            print_mdoc_name(spec, column, list == KEYS ? "Cm" : "Ev", out);
    }
    fprintf(out, ".El\n");
}

void options_print_mdoc(const struct options_program *program, FILE *out)
{
    print_mdoc(program, OPTIONS, out);
}

void options_print_mdoc_keys(const struct options_program *program, FILE *out)
{
    print_mdoc(program, KEYS, out);
}

void options_print_mdoc_variables(const struct options_program *program, FILE *out)
{
    print_mdoc(program, VARIABLES, out);
}
