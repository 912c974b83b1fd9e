/* The rows of config.h become the table, and the table the struct. What one row alone cannot say is checked here:
 * that there is a command, and what --verbose means for the level of the log. */
#include "launcher/config.h"

#include <stddef.h>

#include "common/log.h"

static const struct option_spec specs[] = {
#define CONFIG_ROW(ctype, field, type_, flags_, metavar_, variable_, yaml_, min_, max_, words_, default_, exclusive_, group_, \
                   help_)                                                                                                  \
    {.flags = flags_,                                                                                                      \
     .metavar = metavar_,                                                                                                  \
     .variable = variable_,                                                                                                \
     .yaml = yaml_,                                                                                                        \
     .type = type_,                                                                                                        \
     .min = min_,                                                                                                          \
     .max = max_,                                                                                                          \
     .words = words_,                                                                                                      \
     .default_text = default_,                                                                                             \
     .exclusive = exclusive_,                                                                                              \
     .group = group_,                                                                                                      \
     .help = help_,                                                                                                        \
     .offset = offsetof(struct config, field)},
    CONFIG_OPTIONS(CONFIG_ROW)
#undef CONFIG_ROW
};

const struct options_program config_program = {
    .name = "hvdrun",
    .usage = "[options] command [argument ...]",
    .about = "Starts a command as the ranks of one job, on this host or on many, passes its output on, and returns when the last "
             "process of it is gone.",
    .spec = specs,
    .count = sizeof specs / sizeof *specs,
};

int config_parse(struct config *config, int argc, char *const argv[], char *const envp[], struct err *e)
{
    int operand = argc;
    *config = (struct config){0};
    if (options_parse(&config_program, argc, argv, envp, config, &operand, e))
        return -1;
    if (config->help || config->version || config->check_build)
        return 0;
    if (operand >= argc) {
        err_set(e, ERR_USAGE, "no command: what shall the ranks run?");
        err_hint(e, "usage: %s %s", config_program.name, config_program.usage);
        config_free(config);
        return -1;
    }
    if (!*argv[operand]) {
        err_set(e, ERR_USAGE, "the command is an empty word");
        config_free(config);
        return -1;
    }
    config->command = argv + operand;
    config->command_count = argc - operand;
    if (config->verbose && config->log_level > LOG_INFO)
        config->log_level = LOG_INFO;
    return 0;
}

void config_free(struct config *config)
{
    options_free(&config_program, config);
}
