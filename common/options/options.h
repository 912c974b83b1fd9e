/* The command line of a program, from ONE table.
 *
 * A program lists its options as rows of struct option_spec, each with the field of its configuration struct
 * that it fills. From that table come the parser, the variables that may stand in for an option, the keys of
 * a configuration file, --help and the lists in the manual pages: they cannot disagree. The command line wins
 * over a variable, a variable over the file, the file over the default. Lists add up instead: what is
 * stronger comes later in them.
 *
 *   -np 4   -np=4   --num-proc 4   --num-proc=4   -p22   --verbose
 *
 * The first word that is no option, or the one after `--`, starts the command.
 *
 * Nothing here does I/O but the printers, and nothing is global. Strings in the result point into argv, the
 * environment, the file's settings or the table: they stay valid as long as those do. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/base/err.h"
#include "common/options/settings.h"

enum option_type {
    OPTION_FLAG,    /* bool: no value on the command line; 1/0, true/false, yes/no, on/off in a variable */
    OPTION_ACTION,  /* bool: as a flag, but ends the parsing at once: --help, --version */
    OPTION_INTEGER, /* int64_t; the i-th of `words`, when there are some, stands for -1 - i */
    OPTION_SECONDS, /* int64_t, milliseconds; written in seconds, with at most three decimals; with a metavar
                     * in brackets the value may be left out, as of a mode */
    OPTION_MILLISECONDS, /* int64_t, microseconds; written in milliseconds, with at most three decimals */
    OPTION_CHOICE,       /* int: the index of the word in `words` */
    OPTION_MODE,         /* int: as a choice, but the value may be left out (then it is the second word) and
                          * on the command line follows a '=' only; a flag's words stand for the first and
                          * the second */
    OPTION_TEXT,         /* const char *: at least one byte */
    OPTION_LIST,         /* struct option_list: one more item each time it is given; separated by commas in a
                          * variable, a list or a map of NAME: VALUE in a file */
    OPTION_RANGE         /* struct option_range: two numbers of seconds, "LOW,HIGH", the second not below the
                          * first; on the command line also as two words */
};

struct option_range {
    int64_t low, high; /* milliseconds */
};

struct option_list {
    const char **item; /* freed by options_free */
    size_t count;
    char *text; /* the variable's words, or NULL; freed as well */
};

struct option_spec {
    const char *flags;   /* all spellings: "-np, --num-proc" */
    const char *metavar; /* name of the value in --help; NULL when there is none */
    const char
        *variable; /* the variables that may stand in for it, "A, B": the first that is set counts; or NULL */
    const char *yaml; /* its keys in a configuration file, "key, map.key", or NULL. A ! before a variable or a
                       * key of a flag means its opposite */
    enum option_type type;
    int64_t min, max;         /* of integers and (in seconds) of seconds */
    const char *words;        /* "none|rank|host", or NULL */
    const char *default_text; /* the default as a user would write it; NULL: none (false, 0, NULL) */
    const char *exclusive;    /* options with the same name here exclude one another, or NULL */
    const char *group;        /* heading in --help */
    const char *help;         /* the effect: sentences without a newline */
    size_t offset;            /* of the field in the configuration struct */
};

/* A row of a program's X macro as one of these: the same order of columns in all tables. */
#define OPTION_ROW(config, field, type_, flags_, metavar_, variable_, yaml_, min_, max_, words_, default_,   \
                   exclusive_, group_, help_)                                                                \
    {.flags = flags_,                                                                                        \
     .metavar = metavar_,                                                                                    \
     .variable = variable_,                                                                                  \
     .yaml = yaml_,                                                                                          \
     .type = type_,                                                                                          \
     .min = min_,                                                                                            \
     .max = max_,                                                                                            \
     .words = words_,                                                                                        \
     .default_text = default_,                                                                               \
     .exclusive = exclusive_,                                                                                \
     .group = group_,                                                                                        \
     .help = help_,                                                                                          \
     .offset = offsetof(config, field)},

/* The origin of a value; a higher one wins. */
enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_FILE, OPTION_FROM_VARIABLE, OPTION_FROM_COMMAND_LINE };

#define OPTIONS_MAX 128 /* rows in a table */

/* Options that people know from elsewhere and that are not here: what is said instead of "unknown option". */
struct option_refused {
    const char *flags;      /* as in a row; NULL ends the list */
    const char *why, *hint; /* sentences; behind "--flag: " */
};

/* A key of the file that is no option's. */
struct option_other_key {
    const char *key;   /* NULL ends the list */
    const char *words; /* "gloo|mpi": the values, in any case; NULL: the key is ignored, whatever its value */
};

struct options_program {
    const char *name;  /* "hvdrun" */
    const char *usage; /* "[options] command [argument ...]" */
    const char *about; /* one paragraph */
    const struct option_spec *spec;
    size_t count;
    /* Reads the configuration file, once command line and variables are known; NULL with an empty *e when
     * there is no file. The caller keeps the settings as long as the result. May be NULL. */
    struct settings *(*read_file)(void *config, struct err *e);
    const struct option_other_key *other_keys; /* or NULL */
    /* A key that nothing is like is ignored too. settings.ignored names the keys that were. */
    bool ignores_keys;
    /* The offset of bool [OPTIONS_MAX] in *config: the rows that were given a value; 0: nobody asks. */
    size_t given_at;
    const struct option_refused *refused; /* or NULL */
    const char
        *commands; /* "ps|status": the first word behind the options; NULL: that is a program of the user's */
    const char *only;     /* flags of the rows that may be given on the command line; NULL: any */
    const char *only_why; /* behind the name of another: "--flag " */
};

/* Fills the fields of *config: defaults, then the command line, then the variables of `envp` (NAME=value,
 * NULL at the end; may be NULL) for what the command line left open, then the file for what both did.
 * *operand becomes the index of the first word after the options (argc when none). After an option of type
 * OPTION_ACTION the rest is not looked at. On -1, *config holds nothing that must be freed. */
int options_parse(const struct options_program *program, int argc, char *const argv[], char *const envp[],
                  void *config, int *operand, struct err *e);
/* Names the variable, or the line of the file, whose value this text of the result is; false when it came
 * from elsewhere. */
bool options_origin_of(char *const envp[], const struct settings *file, const char *text, char *name,
                       size_t size);
/* Frees the lists in *config. */
void options_free(const struct options_program *program, void *config);

/* --help: usage, about, then the options by group; at most 80 columns. */
void options_print_help(const struct options_program *program, FILE *out);
/* The options of one group (NULL: of all), as --help shows them. */
void options_print_group(const struct options_program *program, const char *group, FILE *out);
/* Scripts that make a shell complete options, their values, and the words behind them; `program` has actions
 * --bash-completion, --zsh-completion and --fish-completion that show them. */
void options_print_bash(const struct options_program *program, FILE *out);
void options_print_zsh(const struct options_program *program, FILE *out);
void options_print_fish(const struct options_program *program, FILE *out);
