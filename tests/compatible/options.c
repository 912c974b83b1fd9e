/* Prints the option tables of the three programs, a line for each row, for tests/compatible/run.sh.
 *
 * The script compiles this file against the sources of two commits. It includes options.h first, because
 * its folder is not the same in both. A line has what a row means to users, except for help, group and the
 * name of the value: those are texts. */

extern const struct options_program config_program, daemon_program, ctl_program;

static const char *const type_names[] = {
    [OPTION_FLAG] = "flag",       [OPTION_ACTION] = "action",   [OPTION_INTEGER] = "integer",
    [OPTION_SECONDS] = "seconds", [OPTION_MILLISECONDS] = "ms", [OPTION_CHOICE] = "choice",
    [OPTION_MODE] = "mode",       [OPTION_TEXT] = "text",       [OPTION_LIST] = "list",
};

#define TYPES (sizeof type_names / sizeof *type_names)

static void print_fact(const char *name, const char *value)
{
    if (value)
        printf("; %s %s", name, value);
}

/* The last spelling names the row: the long one. */
static const char *long_flag(const char *flags)
{
    const char *last = flags;
    for (const char *c = flags; *c; c++)
        if (*c == ' ')
            last = c + 1;
    return last;
}

static void print_row(const char *program, const struct option_spec *row)
{
    printf("%s %s: %s, as %s", program, long_flag(row->flags),
           row->type < TYPES ? type_names[row->type] : "range", row->flags);
    if (row->min != 0 || row->max != 0)
        printf("; %lld to %lld", (long long)row->min, (long long)row->max);
    print_fact("value", row->metavar && row->metavar[0] == '[' ? "may be left out" : NULL);
    print_fact("words", row->words);
    print_fact("default", row->default_text);
    print_fact("variables", row->variable);
    print_fact("keys", row->yaml);
    print_fact("excludes the others of", row->exclusive);
    putchar('\n');
}

static void print_program(const struct options_program *program)
{
    for (size_t i = 0; i < program->count; i++)
        print_row(program->name, &program->spec[i]);
    for (const struct option_refused *r = program->refused; r && r->flags; r++)
        printf("%s refuses %s\n", program->name, r->flags);
    for (const char *const *key = program->other_keys; key && *key; key++)
        printf("%s takes key %s\n", program->name, *key);
    if (program->only)
        printf("%s takes on its command line only %s\n", program->name, program->only);
}

int main(void)
{
    print_program(&config_program);
    print_program(&daemon_program);
    print_program(&ctl_program);
    return 0;
}
