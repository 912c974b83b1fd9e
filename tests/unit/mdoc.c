#include "tests/unit/mdoc.h"

#include <string.h>

#include "common/options/options_table.h"

#define MDOC_WIDTH 78

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
    char facts[OPTION_WANTED_MAX], names[OPTION_WANTED_MAX];
    option_facts(spec, facts, sizeof facts);
    option_names(column, " , ", names, sizeof names);
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
    case OPTION_RANGE:
        return "two numbers of seconds";
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
