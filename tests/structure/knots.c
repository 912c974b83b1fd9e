/* Knots: files that call each other in a circle, so that none of them can be read, tested or moved alone.
 * A knot is a strongly connected component of the graph of calls (R. Tarjan, Depth-first search and linear
 * graph algorithms, SIAM Journal on Computing 1, 1972).
 *
 * To open a knot some functions must move down, into a file that all others may call. The listing proposes
 * the fewest: it puts the files of the knot in an order in which as few functions as possible are called
 * by a file below theirs, and names those functions with a place of such a call. The order is found by
 * moving single files while this helps, so it is good, and the best in small knots. */
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

#define STARTS 12

struct knot {
    const struct house *house;
    int *file; /* indexes of tree.source; at last from the top to the bottom */
    int count;
    int lines;
    bool crosses; /* folders */
};

struct knots {
    struct knot *item;
    int count;
};

/* ---- finding them -------------------------------------------------------------------------------------- */

struct search {
    const struct house *house;
    struct knots *knots;
    size_t *first; /* the first call of each file, and the end */
    int *number, *low, *stack;
    bool *open; /* on the stack */
    int numbered, height;
};

static int compare_numbers(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

static bool same_folder(const char *a, const char *b)
{
    return folder_length(a) == folder_length(b) && strncmp(a, b, folder_length(a)) == 0;
}

static void add_knot(struct search *s, const int *file, int count)
{
    const struct source *source = s->house->tree->source;
    struct knot k = {.house = s->house, .file = grow(NULL, sizeof *file * (size_t)count), .count = count};
    memcpy(k.file, file, sizeof *file * (size_t)count);
    qsort(k.file, (size_t)count, sizeof *file, compare_numbers);
    for (int i = 0; i < count; i++) {
        k.lines += count_lines(source[k.file[i]].raw);
        k.crosses = k.crosses || !same_folder(source[k.file[0]].path, source[k.file[i]].path);
    }
    s->knots->item = grow(s->knots->item, sizeof k * (size_t)(s->knots->count + 1));
    s->knots->item[s->knots->count++] = k;
}

static void visit_file(struct search *s, int file)
{
    s->number[file] = s->low[file] = ++s->numbered;
    s->stack[s->height++] = file;
    s->open[file] = true;
    for (size_t i = s->first[file]; i < s->first[file + 1]; i++) {
        int to = s->house->calls.item[i].to;
        if (s->number[to] == 0)
            visit_file(s, to);
        int reached = s->open[to] ? s->low[to] : s->low[file];
        s->low[file] = reached < s->low[file] ? reached : s->low[file];
    }
    if (s->low[file] != s->number[file])
        return;
    int top = s->height;
    do
        s->open[s->stack[--s->height]] = false;
    while (s->stack[s->height] != file);
    if (top - s->height > 1)
        add_knot(s, s->stack + s->height, top - s->height);
}

static int compare_knots(const void *a, const void *b)
{
    const struct knot *x = a, *y = b;
    return x->count != y->count ? y->count - x->count : x->file[0] - y->file[0];
}

/* All knots, the largest first. */
static void find_knots(struct knots *k, const struct house *h)
{
    size_t files = (size_t)h->tree->sources, call = 0;
    int *numbers = calloc(3 * files + 1, sizeof *numbers);
    struct search s = {.house = h,
                       .knots = k,
                       .first = grow(NULL, sizeof *s.first * (files + 1)),
                       .number = numbers,
                       .low = numbers + files,
                       .stack = numbers + 2 * files,
                       .open = calloc(files + 1, 1)};
    *k = (struct knots){0};
    for (size_t i = 0; i <= files; i++) {
        while (call < h->calls.count && h->calls.item[call].from < (int)i)
            call++;
        s.first[i] = call;
    }
    for (size_t i = 0; i < files; i++)
        if (s.number[i] == 0)
            visit_file(&s, (int)i);
    if (k->count > 0)
        qsort(k->item, (size_t)k->count, sizeof *k->item, compare_knots);
    free(s.first);
    free(numbers);
    free(s.open);
}

static void free_knots(struct knots *k)
{
    for (int i = 0; i < k->count; i++)
        free(k->item[i].file);
    free(k->item);
}

/* ---- opening one --------------------------------------------------------------------------------------- */

/* The calls inside a knot, by places in its order. */
struct inner {
    const struct call **call; /* by the function called */
    size_t count;
    int *place; /* of each file of the tree; -1: not in the knot */
};

static int compare_called(const void *a, const void *b)
{
    const struct call *x = *(const struct call *const *)a, *y = *(const struct call *const *)b;
    if (x->called != y->called)
        return x->called < y->called ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool is_upward(const struct inner *in, const struct call *c)
{
    return in->place[c->from] > in->place[c->to];
}

/* The functions that are called by a file below theirs. */
static int count_upward(const struct inner *in)
{
    const struct function *last = NULL;
    int count = 0;
    for (size_t i = 0; i < in->count; i++)
        if (in->call[i]->called != last && is_upward(in, in->call[i])) {
            last = in->call[i]->called;
            count++;
        }
    return count;
}

static void place_files(const struct knot *k, struct inner *in)
{
    for (int i = 0; i < k->count; i++)
        in->place[k->file[i]] = i;
}

static void move_file(struct knot *k, struct inner *in, int from, int to)
{
    int file = k->file[from];
    if (from < to)
        memmove(k->file + from, k->file + from + 1, sizeof file * (size_t)(to - from));
    else
        memmove(k->file + to + 1, k->file + to, sizeof file * (size_t)(from - to));
    k->file[to] = file;
    place_files(k, in);
}

/* Improves the order until no move of one file does. Returns the functions that are called upward then. */
static int improve_order(struct knot *k, struct inner *in)
{
    place_files(k, in);
    int best = count_upward(in);
    for (bool better = true; better;) {
        better = false;
        for (int from = 0; from < k->count; from++)
            for (int to = 0; to < k->count; to++) {
                move_file(k, in, from, to);
                int now = count_upward(in);
                better = better || now < best;
                if (now < best)
                    best = now;
                else
                    move_file(k, in, to, from);
            }
    }
    return best;
}

/* The best of several improved orders. The orders that it begins with are shuffled, the same way every
 * time. */
static void order_files(struct knot *k, struct inner *in)
{
    size_t size = sizeof *k->file * (size_t)k->count;
    int *best = grow(NULL, size), least = improve_order(k, in);
    unsigned random = 1;
    memcpy(best, k->file, size);
    for (int start = 1; start < STARTS; start++) {
        for (int i = k->count - 1; i > 0; i--) {
            random = random * 1103515245 + 12345;
            move_file(k, in, (int)(random >> 16) % (i + 1), i);
        }
        int now = improve_order(k, in);
        if (now < least) {
            least = now;
            memcpy(best, k->file, size);
        }
    }
    memcpy(k->file, best, size);
    place_files(k, in);
    free(best);
}

static void read_inner(const struct knot *k, struct inner *in)
{
    const struct house *h = k->house;
    *in = (struct inner){.call = grow(NULL, sizeof *in->call * (h->calls.count + 1)),
                         .place = grow(NULL, sizeof(int) * (size_t)h->tree->sources)};
    for (int i = 0; i < h->tree->sources; i++)
        in->place[i] = -1;
    place_files(k, in);
    for (size_t i = 0; i < h->calls.count; i++)
        if (in->place[h->calls.item[i].from] >= 0 && in->place[h->calls.item[i].to] >= 0)
            in->call[in->count++] = &h->calls.item[i];
    qsort(in->call, in->count, sizeof *in->call, compare_called);
}

/* ---- listing ------------------------------------------------------------------------------------------- */

static void list_files(const struct knot *k, struct offenders *o)
{
    const struct source *source = k->house->tree->source;
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f, "a knot of %d files%s, %d lines; from the top:", k->count,
            k->crosses ? ", in more than one folder" : "", k->lines);
    for (int i = 0; i < k->count; i++)
        fprintf(f, " %s", source[k->file[i]].path);
    fclose(f);
    offender_add(o, source[k->file[0]].path, 0, k->count, "%s", text);
    free(text);
}

static void list_calls(const struct knot *k, const struct inner *in, struct offenders *o)
{
    const struct source *source = k->house->tree->source;
    for (size_t i = 0, next; i < in->count; i = next) {
        const struct call *c = NULL;
        int others = 0;
        for (next = i; next < in->count && in->call[next]->called == in->call[i]->called; next++)
            if (is_upward(in, in->call[next])) {
                others += c != NULL;
                c = c ? c : in->call[next];
            }
        if (c && others > 0)
            offender_add(o, c->file->path, c->line, k->count, "calls up: %s() of %s (%d more such calls)",
                         c->called->name, source[c->to].path, others);
        else if (c)
            offender_add(o, c->file->path, c->line, k->count, "calls up: %s() of %s", c->called->name,
                         source[c->to].path);
    }
}

static int count_knots(const struct house *h, struct offenders *o, bool crossing)
{
    struct knots knots;
    int largest = 0;
    find_knots(&knots, h);
    for (int i = 0; i < knots.count; i++) {
        struct knot *k = &knots.item[i];
        struct inner in;
        if (crossing && !k->crosses)
            continue;
        largest = k->count > largest ? k->count : largest;
        read_inner(k, &in);
        order_files(k, &in);
        list_files(k, o);
        list_calls(k, &in, o);
        free(in.call);
        free(in.place);
    }
    free_knots(&knots);
    return largest;
}

int count_largest_knot(const struct house *h, struct offenders *o)
{
    return count_knots(h, o, false);
}

int count_crossing_knot(const struct house *h, struct offenders *o)
{
    return count_knots(h, o, true);
}
