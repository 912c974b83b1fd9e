/* How a row of an option table is read: shared by the parts of the parser and the printers of options.h, and
 * by no other file. */
#pragma once

#include "common/options/options.h"

/* One of the names in a column: a flag, a variable or a key; not terminated. */
struct option_name {
    const char *text;
    size_t len;
    bool opposite; /* it had a ! before it, which is not in text */
};

/* The next name of a column (which may be NULL); begin with an empty *name. */
bool option_next_name(const char *column, struct option_name *name);

/* Of "a|b|c" (which may be NULL): the index of `value`, in any case; -1: it is not there. */
int option_word_index(const char *words, const char *value);
/* "a, b or c" */
void option_join_words(const char *words, char *text, size_t size);
/* "a b c" */
void option_print_words(const char *words, FILE *out);

#define OPTION_WANTED_MAX 256
/* A value that may be left out, and follows a '=' only: its metavar stands in brackets. */
bool option_is_optional(const struct option_spec *spec);
/* The demand on a value: "a number from 1 to 65535". */
void option_wanted(const struct option_spec *spec, char *text, size_t size);

/* Range and default of the row, besides the help text: "1 to 86400, default 30". Empty when it has none. */
void option_facts(const struct option_spec *spec, char *text, size_t size);
/* The names of a column with `between` between them; a name that means the opposite as NAME=0. */
void option_names(const char *column, const char *between, char *text, size_t size);

#define OPTION_SHOWN 80 /* bytes of a user's value in a message */

/* How a value is named in messages. */
struct option_origin {
    const char *name;
    size_t len;
    bool opposite; /* the value of a flag means its opposite */
    bool half;     /* the value is the first of two words */
};

/* One run of the parser. */
struct parsing {
    const struct options_program *program;
    char *config;
    enum option_source source[OPTIONS_MAX];
    struct option_origin spelled[OPTIONS_MAX]; /* a flag in argv, up to '=', a variable, a line of the file */
    size_t added[OPTIONS_MAX];                 /* to a list, by the source in hand */
    bool stop;                                 /* an OPTION_ACTION was given */
};

/* The value of row `row`, from words that stay. */
int option_store(struct parsing *p, size_t row, enum option_source source, struct option_origin from,
                 const char *value, struct err *e);
/* A stronger source decided about this row, or about one that excludes it. Never true of lists. */
bool option_is_decided(const struct parsing *p, size_t row, enum option_source source);

int option_parse_variables(struct parsing *p, char *const envp[], struct err *e);
int option_parse_file(struct parsing *p, struct settings *file, struct err *e);

/* The flag, or key of a file, that looks most like a word; its len is 0 when none is near. */
struct option_name option_near_flag(const struct options_program *program, const char *word, size_t len);
struct option_name option_near_key(const struct options_program *program, const char *word, size_t len);
