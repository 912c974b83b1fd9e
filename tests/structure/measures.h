/* The measures of the house: figures about the sources of which each has a limit that may not be passed,
 * and a goal. The table of all is in measures.c. */
#pragma once

#include <stdio.h>

#include "tests/structure/calls.h"
#include "tests/structure/functions.h"
#include "tests/structure/structure.h"
#include "tests/structure/tokens.h"

/* A tree with all that is known of its product files. */
struct house {
    const struct tree *tree;
    struct tokens *tokens; /* of tree->source[i]; none outside the product */
    struct functions functions;
    struct calls calls;
};

void house_read(struct house *h, const struct tree *t);
void house_free(struct house *h);

/* A place that makes a figure as large as it is. */
struct offender {
    char *path;
    int line;   /* 0: the file or folder as a whole */
    int weight; /* its own figure where the measure is the largest of several; else 1 */
    char *text;
    size_t number; /* as they were added */
};

struct offenders {
    struct offender *item;
    size_t count;
};

void offender_add(struct offenders *o, const char *path, int line, int weight, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
void offender_print(FILE *out, const struct offender *o);
void offenders_free(struct offenders *o);
/* The largest weight first. */
void offenders_sort(struct offenders *o);
/* Whether one of them has that path and text, on any line. */
bool offenders_have(const struct offenders *all, const struct offender *one);

/* Each returns its figure and adds the offenders. */
int count_largest_folder(const struct house *h, struct offenders *o);
int count_largest_knot(const struct house *h, struct offenders *o);
int count_crossing_knot(const struct house *h, struct offenders *o);
int count_widest_struct(const struct house *h, struct offenders *o);
int count_one_word(const struct house *h, struct offenders *o); /* in tenths of a percent */
int count_double_names(const struct house *h, struct offenders *o);
int count_long_functions(const struct house *h, struct offenders *o);
int count_one_user(const struct house *h, struct offenders *o);
int count_questions(const struct house *h, struct offenders *o);
int count_test_questions(const struct house *h, struct offenders *o);
int count_broken_tables(const struct house *h, struct offenders *o);
int count_wide_comments(const struct house *h, struct offenders *o);
int count_small_files(const struct house *h, struct offenders *o);
int count_large_files(const struct house *h, struct offenders *o);
int count_double_files(const struct house *h, struct offenders *o);
int count_product_lines(const struct house *h, struct offenders *o);
int count_readme_lines(const struct house *h, struct offenders *o);
int count_readme_columns(const struct house *h, struct offenders *o);

/* Prints the table, then what has passed its limit and why. False when something has. */
bool measures_check(const struct tree *t);
/* Prints the offenders of the measure with this word; with `old`, those that `old` lacks. False: no such
 * word. */
bool measures_list(const struct tree *t, const struct tree *old, const char *word);
/* Every counter finds in SAMPLES/measures/<word> what the file `expected` there has. Returns how many do
 * not. */
int measures_test(const char *samples);
