/* The scripts of options_print_zsh and options_print_fish: the rows of the table in the words of
 * these shells, each option with the first sentence of its help. */
#include <string.h>

#include "common/options/options_table.h"

/* The first sentence, for a list of options; `escaped` have a backslash before them. */
static void print_about(const struct option_spec *spec, const char *escaped, FILE *out)
{
    const char *end = strstr(spec->help, ". ");
    size_t len = end ? (size_t)(end - spec->help) : strlen(spec->help);
    for (size_t i = 0; i < len; i++) {
        if (strchr(escaped, spec->help[i]))
            fputc('\\', out);
        fputs(spec->help[i] == '\'' ? "'\\''" : (char[]){spec->help[i], '\0'}, out);
    }
}

static bool is_plain(const struct option_spec *spec)
{
    return spec->type == OPTION_FLAG || spec->type == OPTION_ACTION;
}

static bool wants_file(const struct option_spec *spec)
{
    return spec->metavar && strcmp(spec->metavar, "FILE") == 0;
}

static bool wants_directory(const struct option_spec *spec)
{
    return spec->metavar && strcmp(spec->metavar, "DIRECTORY") == 0;
}

/* ---- zsh ----------------------------------------------------------------------------------------------- */

static void print_zsh_value(const struct option_spec *spec, FILE *out)
{
    if (is_plain(spec))
        return;
    fputs(option_is_optional(spec) ? "::value:" : ":value:", out);
    if (spec->words) {
        fputc('(', out);
        option_print_words(spec->words, out);
        fputc(')', out);
    } else if (wants_file(spec) || wants_directory(spec)) {
        fputs(wants_file(spec) ? "_files" : "_files -/", out);
    } else {
        fputc(' ', out);
    }
}

/* A long flag has its value behind = or in the next word, an optional one behind = only. */
static void print_zsh_flag(const struct option_spec *spec, const struct option_name *flag, FILE *out)
{
    bool is_long = flag->len > 2 && flag->text[1] == '-';
    fprintf(out, " \\\n    '*%.*s%s[", (int)flag->len, flag->text,
            is_plain(spec) || !is_long ? ""
            : option_is_optional(spec) ? "=-"
                                       : "=");
    print_about(spec, "[]:\\", out);
    fputc(']', out);
    print_zsh_value(spec, out);
    fputc('\'', out);
}

void options_print_zsh(const struct options_program *program, FILE *out)
{
    fprintf(out, "#compdef %1$s\n# zsh completion of %1$s: %1$s --zsh-completion\n_arguments -S",
            program->name);
    for (size_t i = 0; i < program->count; i++) {
        struct option_name flag = {0};
        while (option_next_name(program->spec[i].flags, &flag))
            print_zsh_flag(&program->spec[i], &flag, out);
    }
    if (!program->commands) {
        fputs(" \\\n    '(-)1:command:_command_names -e' '*::arguments:_normal'\n", out);
        return;
    }
    fputs(" \\\n    '1:command:(", out);
    option_print_words(program->commands, out);
    fputs(")' '*:job or host: '\n", out);
}

/* ---- fish ---------------------------------------------------------------------------------------------- */

static void print_fish_flag(const struct option_name *flag, FILE *out)
{
    if (flag->text[1] == '-')
        fprintf(out, " -l %.*s", (int)flag->len - 2, flag->text + 2);
    else
        fprintf(out, " -%c %.*s", flag->len == 2 ? 's' : 'o', (int)flag->len - 1, flag->text + 1);
}

static void print_fish_value(const struct option_spec *spec, FILE *out)
{
    if (spec->words) {
        fputs(option_is_optional(spec) ? " -f -a '" : " -x -a '", out);
        option_print_words(spec->words, out);
        fputc('\'', out);
    } else if (wants_file(spec)) {
        fputs(" -r -F", out);
    } else if (wants_directory(spec)) {
        fputs(" -x -a '(__fish_complete_directories)'", out);
    } else if (!is_plain(spec) && !option_is_optional(spec)) {
        fputs(" -x", out);
    }
}

/* The end of an option's text in fish's quotes. */
static void print_fish_row(const struct options_program *program, const struct option_spec *spec, FILE *out)
{
    struct option_name flag = {0};
    fprintf(out, "complete -c %s", program->name);
    while (option_next_name(spec->flags, &flag))
        print_fish_flag(&flag, out);
    print_fish_value(spec, out);
    fputs(" -d '", out);
    print_about(spec, "\\", out);
    fputs("'\n", out);
}

void options_print_fish(const struct options_program *program, FILE *out)
{
    fprintf(out, "# fish completion of %1$s: %1$s --fish-completion\n", program->name);
    for (size_t i = 0; i < program->count; i++)
        print_fish_row(program, &program->spec[i], out);
    if (program->commands) {
        fprintf(out, "complete -c %s -n __fish_use_subcommand -f -a '", program->name);
        option_print_words(program->commands, out);
        fputs("'\n", out);
    } else {
        fprintf(out, "complete -c %s -a '(__fish_complete_subcommand)'\n", program->name);
    }
}
