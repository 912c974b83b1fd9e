/* Lists of places. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

void offender_add(struct offenders *o, const char *path, int line, int weight, const char *fmt, ...)
{
    struct offender one = {.path = strdup(path), .line = line, .weight = weight, .number = o->count};
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&one.text, fmt, args) < 0)
        one.text = strdup("");
    va_end(args);
    if ((o->count & (o->count - 1)) == 0)
        o->item = grow(o->item, sizeof one * (o->count ? o->count * 2 : 1));
    o->item[o->count++] = one;
}

void offender_print(FILE *out, const struct offender *o)
{
    if (o->line > 0)
        fprintf(out, "%s:%d: %s\n", o->path, o->line, o->text);
    else
        fprintf(out, "%s: %s\n", o->path, o->text);
}

void offenders_free(struct offenders *o)
{
    for (size_t i = 0; i < o->count; i++) {
        free(o->item[i].path);
        free(o->item[i].text);
    }
    free(o->item);
    *o = (struct offenders){0};
}

static int compare_offenders(const void *a, const void *b)
{
    const struct offender *x = a, *y = b;
    return x->weight != y->weight ? y->weight - x->weight : (x->number > y->number) - (x->number < y->number);
}

void offenders_sort(struct offenders *o)
{
    if (o->count > 0)
        qsort(o->item, o->count, sizeof *o->item, compare_offenders);
}

bool offenders_have(const struct offenders *all, const struct offender *one)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->item[i].path, one->path) == 0 && strcmp(all->item[i].text, one->text) == 0)
            return true;
    return false;
}
