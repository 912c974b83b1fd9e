/* What options.h prints: --help for a terminal, and the list of options for the manual page. Both say the
 * same of a row, in the same words; a test compares the page with this table. */
#include <inttypes.h>
#include <string.h>

#include "common/options_table.h"

#define WIDTH      80 /* of --help */
#define INDENT     28 /* where its descriptions begin */
#define MDOC_WIDTH 78

bool option_next_flag(const struct option_spec *spec, struct option_flag *flag)
{
    const char *next = flag->text ? flag->text + flag->len : spec->flags;
    next += strspn(next, ", ");
    flag->text = next;
    flag->len = strcspn(next, ",");
    return flag->len > 0;
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

void option_wanted(const struct option_spec *spec, char *text, size_t size)
{
    char words[OPTION_WANTED_MAX / 2];
    const char *unit = spec->type == OPTION_SECONDS ? "a number of seconds" : "a number";
    join_words(spec->words ? spec->words : "", words, sizeof words);
    switch (spec->type) {
    case OPTION_INTEGER:
    case OPTION_SECONDS:
        snprintf(text, size, "%s from %" PRId64 " to %" PRId64 "%s%s", unit, spec->min, spec->max,
                 *words ? ", or " : "", words);
        break;
    case OPTION_CHOICE:
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

/* What the table knows besides the help text: "1 to 86400, default 30". Empty when nothing. */
static void option_facts(const struct option_spec *spec, char *text, size_t size)
{
    char range[OPTION_WANTED_MAX] = "", words[OPTION_WANTED_MAX / 2] = "";
    bool number = spec->type == OPTION_INTEGER || spec->type == OPTION_SECONDS;
    if (spec->words)
        join_words(spec->words, words, sizeof words);
    if (number)
        snprintf(range, sizeof range, "%" PRId64 " to %" PRId64 "%s", spec->min, spec->max,
                 *words ? ", or " : "");
    snprintf(text, size, "%s%s%s%s", range, words, spec->default_text ? ", default " : "",
             spec->default_text ? spec->default_text : "");
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

static void print_option(const struct option_spec *spec, FILE *out)
{
    char facts[OPTION_WANTED_MAX], text[1024];
    int at =
        fprintf(out, "  %s%s%s", spec->flags, spec->metavar ? " " : "", spec->metavar ? spec->metavar : "");
    if (at > INDENT - 2) {
        fputc('\n', out);
        at = 0;
    }
    fprintf(out, "%*s", INDENT - at, "");
    option_facts(spec, facts, sizeof facts);
    if (*facts || spec->variable)
        snprintf(text, sizeof text, "%s (%s%s%s)", spec->help, facts, *facts && spec->variable ? "; " : "",
                 spec->variable ? spec->variable : "");
    else
        snprintf(text, sizeof text, "%s", spec->help);
    print_wrapped(out, text, INDENT, INDENT);
    fputc('\n', out);
}

void options_print_help(const struct options_program *program, FILE *out)
{
    const char *group = "";
    fprintf(out, "usage: %s %s\n\n", program->name, program->usage);
    print_wrapped(out, program->about, 0, 0);
    fputc('\n', out);
    for (size_t i = 0; i < program->count; i++) {
        if (strcmp(group, program->spec[i].group) != 0)
            fprintf(out, "\n%s:\n", program->spec[i].group);
        group = program->spec[i].group;
        print_option(&program->spec[i], out);
    }
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

static void print_mdoc_option(const struct option_spec *spec, FILE *out)
{
    struct option_flag flag = {0};
    char facts[OPTION_WANTED_MAX];
    const char *between = ".It Fl ";
    while (option_next_flag(spec, &flag)) {
        fprintf(out, "%s%.*s", between, (int)flag.len - 1, flag.text + 1);
        between = " , Fl ";
    }
    fprintf(out, "%s%s\n", spec->metavar ? " Ar " : "", spec->metavar ? spec->metavar : "");
    print_mdoc_text(spec->help, out);
    option_facts(spec, facts, sizeof facts);
    if (*facts && spec->variable)
        fprintf(out, ".Pq %s ; Ev %s\n", facts, spec->variable);
    else if (*facts || spec->variable)
        fprintf(out, ".Pq %s%s\n", *facts ? facts : "Ev ", *facts ? "" : spec->variable);
}

void options_print_mdoc(const struct options_program *program, FILE *out)
{
    const char *group = "";
    for (size_t i = 0; i < program->count; i++) {
        const struct option_spec *spec = &program->spec[i];
        if (strcmp(group, spec->group) != 0)
            fprintf(out, "%s.Ss %s\n.Bl -tag -width Ds\n", *group ? ".El\n" : "", spec->group);
        group = spec->group;
        print_mdoc_option(spec, out);
    }
    fprintf(out, ".El\n");
}
