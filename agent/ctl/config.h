/* The options of hvdctl, in one table (common/options/options.h). They may stand anywhere. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/options/options.h"

/* X(type, field, OPTION_TYPE, flags, metavar, min, max, default, help) */
#define CTL_OPTIONS(X)                                                                                       \
    X(bool, json, OPTION_FLAG, "--json", NULL, 0, 0, NULL, "Print JSON.")                                    \
    X(bool, follow, OPTION_FLAG, "-f, --follow", NULL, 0, 0, NULL,                                           \
      "logs: also print new output of the ranks, until the job has ended on this host.")                     \
    X(const char *, rank, OPTION_TEXT, "-r, --rank", "LIST", 0, 0, NULL,                                     \
      "logs: print the output of these ranks only, as in 0,2-5.")                                            \
    X(int64_t, interval_ms, OPTION_SECONDS, "--interval", "SECONDS", 0, 3600, "2",                           \
      "top: time between two updates.")                                                                      \
    X(int64_t, count, OPTION_INTEGER, "-n, --count", "N", 1, 1000000, NULL, "top: end after N updates.")     \
    X(int64_t, seconds_ms, OPTION_SECONDS, "--seconds", "SECONDS", 0, 3600, "5",                             \
      "trace: how long. 0: only the operations that the hosts still know.")                                  \
    X(const char *, file, OPTION_TEXT, "--file", "FILE", 0, 0, NULL,                                         \
      "trace, page: the file to write, - for stdout. Without this option: JOB.trace.json, JOB.html.")        \
    X(const char *, reason, OPTION_TEXT, "--reason", "TEXT", 0, 0, NULL,                                     \
      "drain: the reason; users who ask for slots are told. leave: the reason, for the job's user.")         \
    X(bool, bash_completion, OPTION_ACTION, "--bash-completion", NULL, 0, 0, NULL,                           \
      "Print a script that lets bash complete commands and options.")                                        \
    X(bool, zsh_completion, OPTION_ACTION, "--zsh-completion", NULL, 0, 0, NULL, "Print the same for zsh.")  \
    X(bool, fish_completion, OPTION_ACTION, "--fish-completion", NULL, 0, 0, NULL,                           \
      "Print the same for fish.")                                                                            \
    X(bool, help, OPTION_ACTION, "-h, --help", NULL, 0, 0, NULL, "Show this help and exit.")                 \
    X(bool, version, OPTION_ACTION, "--version", NULL, 0, 0, NULL, "Show the version and exit.")

struct ctl_config {
#define CTL_FIELD(type, field, ...) type field;
    CTL_OPTIONS(CTL_FIELD)
#undef CTL_FIELD
    const char *command, *job; /* NULL: not given; of ps, node, drain and undrain `job` is a host */
    const char *number;        /* of resize */
};

/* -1 with *e (ERR_USAGE). */
int ctl_config_parse(struct ctl_config *c, int argc, char *const argv[], struct err *e);
extern const struct options_program ctl_program;
