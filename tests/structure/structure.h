/* structure: the house rules as a program. See structure.c for what they are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum rule {
    RULE_INCLUDE_DIRECTION, /* of wings and folders */
    RULE_LIBRARY_HEADER,    /* a folder's use of a library's header, through any number of our own */
    RULE_BANNED_CALL,
    RULE_LENGTH, /* of functions */
    RULE_NEEDED, /* DT_NEEDED of what is built */
    RULE_EXPORTS,
    RULE_COUNT
};

/* Violations are printed as they are found, unless quiet, and counted. */
struct report {
    bool quiet;
    int count[RULE_COUNT];
};

/* Prints a line of TAP; 0 when all is well. */
int print_result(bool ok, const char *name);
void report_add(struct report *r, enum rule rule, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A source file: as it was written, and without its comments and the contents of its strings. */
struct source {
    char *path; /* from the top of the tree */
    char *raw;
    char *text;     /* every line and column is where `raw` has it */
    char **include; /* "common/base/err.h" for ours, "<uv.h>" for others */
    int *include_line;
    int includes;
};

struct tree {
    char *root;
    struct source *source;
    int sources;
};

/* Reads all .c and .h below root, except build output and samples. Ends the program when it cannot. */
void tree_read(struct tree *t, const char *root);
void tree_free(struct tree *t);
/* By path from the top, or NULL. */
const struct source *tree_find(const struct tree *t, const char *path);
/* The path from the top that an include of `from` means: as it stands, beside the file, or hvd.h. NULL: not
 * in the tree. */
const struct source *tree_resolve(const struct tree *t, const struct source *from, const char *name);

/* The rules about sources (rules.c). */
void check_sources(const struct tree *t, struct report *r);

/* The rules about what was built (binary.c). `allowed`: names of libraries up to ".so", separated by spaces.
 */
void check_needed(const char *file, const char *allowed, struct report *r);
/* Every symbol that a shared library or the members of an archive define for others begins with hvd_; those
 * of a shared library are exactly the functions in `header`. */
void check_exports(const char *file, const char *header, struct report *r);

/* Whether `path` lies in one of the four wings that are built for users. */
bool is_product(const char *path);
bool is_header(const char *path);
/* The length of the path of the folder that the file lies in. */
size_t folder_length(const char *path);
int count_lines(const char *text);
/* Characters, not bytes. */
int count_columns(const char *line, size_t len);

/* Reads a whole file, with a zero byte after it; NULL when it cannot be read. */
char *read_file(const char *path, size_t *size);
void *grow(void *memory, size_t size);
