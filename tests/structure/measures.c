/* The table of all measures, and how it is printed, checked, listed and tested. */
#include "tests/structure/measures.h"

#include <stdlib.h>
#include <string.h>

#define NO_GOAL    -1
#define NO_LIMIT   1000000
#define SHOWN_MOST 20 /* offenders after a failure */

/* `limit` is what the figure may not pass. As the tree improves, lower the limit to the figure of the day,
 * down to the goal. */
static const struct measure {
    const char *word; /* for --list, and the folder of its sample */
    const char *name;
    int (*count)(const struct house *h, struct offenders *o);
    int limit, goal;
    bool largest;   /* the figure is that of the largest offender */
    bool per_mille; /* shown as percent */
} measure[] = {
    {"folder", "largest folder, .c files", count_largest_folder, 25, 25, true, false},
    {"knot", "largest knot of calls, files", count_largest_knot, 4, 8, true, false},
    {"crossing", "largest knot across folders, files", count_crossing_knot, 0, 0, true, false},
    {"struct", "widest struct, fields", count_widest_struct, 30, 30, true, false},
    {"one-word", "one-word static functions, %", count_one_word, 10, 30, false, true},
    {"double-function", "external functions of one name", count_double_names, 0, 0, false, false},
    {"double-file", ".c files of one name in a wing", count_double_files, NO_LIMIT, NO_GOAL, false, false},
    {"header", "headers with one user", count_one_user, 32, 30, false, false},
    {"function", "functions over 70 lines", count_long_functions, 0, 2, false, false},
    {"small-file", ".c files under 60 lines", count_small_files, NO_LIMIT, NO_GOAL, false, false},
    {"large-file", "files over 800 lines", count_large_files, 0, 0, false, false},
    {"question", "sentences that begin with a question word", count_questions, 0, 0, false, false},
    {"test-question", "the same in tests and examples", count_test_questions, 0, 0, false, false},
    {"table", "broken tables in comments", count_broken_tables, 0, 0, false, false},
    {"wide-comment", "comment lines over 110 columns", count_wide_comments, 0, 0, false, false},
    {"readme-lines", "README, lines", count_readme_lines, 150, 150, true, false},
    {"readme-columns", "README, longest line", count_readme_columns, 110, 110, true, false},
    {"lines", "product lines", count_product_lines, 110982, 79000, false, false},
};

#define MEASURES (sizeof measure / sizeof *measure)

/* ---- the table ----------------------------------------------------------------------------------------- */

static void format_figure(char text[16], const struct measure *m, int figure)
{
    if (figure == NO_GOAL || figure == NO_LIMIT)
        snprintf(text, 16, "-");
    else if (m->per_mille)
        snprintf(text, 16, "%d.%d", figure / 10, figure % 10);
    else
        snprintf(text, 16, "%d", figure);
}

static bool is_over(const struct measure *m, int figure)
{
    return figure > m->limit;
}

/* The last column: a limit that can be lowered, or a goal that is reached. */
static const char *judge_figure(const struct measure *m, int figure)
{
    if (is_over(m, figure))
        return "over its limit";
    if (m->limit != NO_LIMIT && figure < m->limit && m->limit > m->goal)
        return "lower its limit";
    return m->goal != NO_GOAL && figure <= m->goal ? "reached" : "";
}

static void print_row(const struct measure *m, int figure)
{
    char today[16], limit[16], goal[16];
    format_figure(today, m, figure);
    format_figure(limit, m, m->limit);
    format_figure(goal, m, m->goal);
    printf("# %-16s %-42s %7s %7s %7s  %s\n", m->word, m->name, today, limit, goal, judge_figure(m, figure));
}

/* Shows those over the limit where the figure is that of the largest offender; else all if they are few. */
static void print_failure(const struct measure *m, struct offenders *o)
{
    offenders_sort(o);
    printf("    # %s: over the limit\n", m->name);
    for (size_t i = 0; i < o->count && (m->largest || o->count <= SHOWN_MOST); i++)
        if (!m->largest || o->item[i].weight > m->limit) {
            printf("    #   ");
            offender_print(stdout, &o->item[i]);
        }
    printf("    #   all: structure --list %s; new since the last commit: tests/structure/new.sh %s\n",
           m->word, m->word);
}

bool measures_check(const struct tree *t)
{
    struct house h;
    bool ok = true;
    house_read(&h, t);
    printf("# %-16s %-42s %7s %7s %7s\n", "measure", "", "today", "limit", "goal");
    for (size_t i = 0; i < MEASURES; i++) {
        struct offenders o = {0};
        int figure = measure[i].count(&h, &o);
        print_row(&measure[i], figure);
        if (is_over(&measure[i], figure)) {
            print_failure(&measure[i], &o);
            ok = false;
        }
        offenders_free(&o);
    }
    house_free(&h);
    return ok;
}

/* ---- lists --------------------------------------------------------------------------------------------- */

static void list_offenders(const struct house *h, const struct house *old, const struct measure *m, FILE *out)
{
    struct offenders now = {0}, before = {0};
    char figure[16];
    format_figure(figure, m, m->count(h, &now));
    if (old)
        m->count(old, &before);
    offenders_sort(&now);
    for (size_t i = 0; i < now.count; i++)
        if (!offenders_have(&before, &now.item[i]))
            offender_print(out, &now.item[i]);
    fprintf(out, "%s: %s\n", m->name, figure);
    offenders_free(&now);
    offenders_free(&before);
}

bool measures_list(const struct tree *t, const struct tree *old, const char *word)
{
    struct house h, before;
    for (size_t i = 0; i < MEASURES; i++) {
        if (strcmp(measure[i].word, word) != 0)
            continue;
        house_read(&h, t);
        if (old)
            house_read(&before, old);
        list_offenders(&h, old ? &before : NULL, &measure[i], stdout);
        house_free(&h);
        if (old)
            house_free(&before);
        return true;
    }
    fprintf(stderr, "structure: no measure %s; there are", word);
    for (size_t i = 0; i < MEASURES; i++)
        fprintf(stderr, " %s", measure[i].word);
    fprintf(stderr, "\n");
    return false;
}

/* ---- the test of the measures themselves --------------------------------------------------------------- */

/* The list of a sample is what the sample's file `expected` has; a limit equal to the figure holds, and
 * one less does not. */
static bool test_measure(const char *samples, const struct measure *m)
{
    struct measure limited = *m;
    struct offenders o = {0};
    struct tree t;
    struct house h;
    char path[4096], *found = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/measures/%s", samples, m->word);
    tree_read(&t, path);
    house_read(&h, &t);
    FILE *out = open_memstream(&found, &size);
    list_offenders(&h, NULL, m, out);
    fclose(out);
    snprintf(path, sizeof path, "%s/measures/%s/expected", samples, m->word);
    char *expected = read_file(path, &size);
    bool ok = expected && strcmp(expected, found) == 0;
    limited.limit = m->count(&h, &o);
    ok = ok && o.count > 0 && !is_over(&limited, limited.limit) && is_over(&limited, limited.limit + 1);
    if (!ok)
        printf("    # expected:\n%s    # found:\n%s", expected ? expected : "", found);
    free(found);
    free(expected);
    offenders_free(&o);
    house_free(&h);
    tree_free(&t);
    return ok;
}

int measures_test(const char *samples)
{
    char name[64];
    int failed = 0;
    for (size_t i = 0; i < MEASURES; i++) {
        snprintf(name, sizeof name, "self-test: measure %s", measure[i].word);
        failed += print_result(test_measure(samples, &measure[i]), name);
    }
    return failed;
}
