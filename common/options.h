/* The command line of a program, from ONE table.
 *
 * A program lists its options as rows of struct option_spec, each with the field of its configuration struct
 * that it fills. From that table come the parser, the variables that may stand in for an option, --help and
 * the list in the manual page: they cannot disagree. The command line wins over a variable, a variable over
 * the default.
 *
 *   -np 4   -np=4   --num-proc 4   --num-proc=4   -p22   --verbose
 *
 * The first word that is no option, or the one after `--`, starts the command.
 *
 * Nothing here does I/O but the two printers, and nothing is global. Strings in the result point into argv,
 * the environment or the table: they stay valid as long as those do. */
#ifndef HVD_COMMON_OPTIONS_H
#define HVD_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "common/err.h"

enum option_type {
    OPTION_FLAG,    /* bool: no value on the command line; 1/0, true/false, yes/no, on/off in a variable */
    OPTION_ACTION,  /* bool: as a flag, but ends the parsing at once: --help, --version */
    OPTION_INTEGER, /* int64_t; the i-th of `words`, when there are some, stands for -1 - i */
    OPTION_SECONDS, /* int64_t, milliseconds; written in seconds, with at most three decimals */
    OPTION_CHOICE,  /* int: the index of the word in `words` */
    OPTION_TEXT,    /* const char *: at least one byte */
    OPTION_LIST     /* struct option_list: every time it is given, one more item */
};

struct option_list {
    const char **item; /* freed by options_free */
    size_t count;
};

struct option_spec {
    const char *flags;    /* all spellings: "-np, --num-proc" */
    const char *metavar;  /* what the value is called in --help; NULL when there is none */
    const char *variable; /* the variable that may stand in for it, or NULL */
    const char *yaml;     /* its key in a configuration file, or NULL */
    enum option_type type;
    int64_t min, max;         /* of integers and (in seconds) of seconds */
    const char *words;        /* "none|rank|host", or NULL */
    const char *default_text; /* the default as a user would write it; NULL: none (false, 0, NULL) */
    const char *exclusive;    /* options with the same name here exclude one another, or NULL */
    const char *group;        /* heading in --help */
    const char *help;         /* what it does: sentences without a newline */
    size_t offset;            /* of the field in the configuration struct */
};

/* Where a value came from; a higher one wins. */
enum option_source { OPTION_FROM_DEFAULT, OPTION_FROM_FILE, OPTION_FROM_VARIABLE, OPTION_FROM_COMMAND_LINE };

#define OPTIONS_MAX 128 /* rows in a table */

struct options_program {
    const char *name;  /* "hvdrun" */
    const char *usage; /* "[options] command [argument ...]" */
    const char *about; /* one paragraph */
    const struct option_spec *spec;
    size_t count;
};

/* Fills the fields of *config: defaults, then the command line, then the variables of `envp` (NAME=value,
 * NULL at the end; may be NULL) for what the command line left open. *operand becomes the index of the first
 * word after the options (argc when none). After an option of type OPTION_ACTION the rest is not looked at.
 * On -1, *config holds nothing that must be freed. */
int options_parse(const struct options_program *program, int argc, char *const argv[], char *const envp[],
                  void *config, int *operand, struct err *e);
/* The variable whose value this text of the result is; NULL when it came from elsewhere. */
const char *options_variable_of(const struct options_program *program, char *const envp[], const char *text);
/* Frees the lists in *config. */
void options_free(const struct options_program *program, void *config);

/* --help: usage, about, then the options by group; at most 80 columns. */
void options_print_help(const struct options_program *program, FILE *out);
/* The same options as an mdoc(7) list, for the manual page. */
void options_print_mdoc(const struct options_program *program, FILE *out);

#endif
