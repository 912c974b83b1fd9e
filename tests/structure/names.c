/* Functions by their names and lengths. */
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

#define FUNCTION_LINES 70

/* A static function is verb_object: `take` alone is not a name that perf, gdb and grep can tell from
 * others. */
int count_one_word(const struct house *h, struct offenders *o)
{
    int all = 0, found = 0;
    for (size_t i = 0; i < h->functions.count; i++) {
        const struct function *f = &h->functions.item[i];
        bool one_word = f->is_static && !strchr(f->name, '_');
        all += f->is_static;
        found += one_word;
        if (one_word)
            offender_add(o, f->file->path, f->line, 1, "%s()", f->name);
    }
    return all ? (found * 1000 + all - 1) / all : 0;
}

int count_long_functions(const struct house *h, struct offenders *o)
{
    int found = 0;
    for (size_t i = 0; i < h->functions.count; i++) {
        const struct function *f = &h->functions.item[i];
        found += f->lines > FUNCTION_LINES;
        if (f->lines > FUNCTION_LINES)
            offender_add(o, f->file->path, f->line, 1, "%s() has %d lines", f->name, f->lines);
    }
    return found;
}

static int compare_functions(const void *a, const void *b)
{
    const struct function *x = *(const struct function *const *)a, *y = *(const struct function *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

/* Two external functions of one name can only be in two programs, or in a program and its module. A
 * backtrace then does not tell which. Every program has its main(); branches of #if may define a function
 * twice in one file. */
int count_double_names(const struct house *h, struct offenders *o)
{
    const struct function **external = grow(NULL, sizeof *external * (h->functions.count + 1));
    size_t count = 0;
    int found = 0;
    for (size_t i = 0; i < h->functions.count; i++)
        if (!h->functions.item[i].is_static && strcmp(h->functions.item[i].name, "main") != 0)
            external[count++] = &h->functions.item[i];
    qsort(external, count, sizeof *external, compare_functions);
    for (size_t i = 1; i < count; i++)
        if (strcmp(external[i - 1]->name, external[i]->name) == 0 &&
            external[i - 1]->file != external[i]->file) {
            found++;
            offender_add(o, external[i]->file->path, external[i]->line, 1, "%s() is in %s too",
                         external[i]->name, external[i - 1]->file->path);
        }
    free(external);
    return found;
}
