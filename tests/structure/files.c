/* Files by their number, length and names, and the README. */
#include <stdlib.h>
#include <string.h>

#include "tests/structure/measures.h"

#define SMALL_LINES 60
#define LARGE_LINES 800

static bool is_product_code(const struct source *s)
{
    return is_product(s->path) && !is_header(s->path);
}

/* Whether the file is the first of its folder's .c files; *count: how many there are. */
static bool is_first_of_folder(const struct tree *t, int file, int *count)
{
    size_t len = folder_length(t->source[file].path) + 1;
    *count = 0;
    for (int i = 0; i < t->sources; i++) {
        const char *path = t->source[i].path;
        bool here = is_product_code(&t->source[i]) && strncmp(path, t->source[file].path, len) == 0 &&
                    folder_length(path) + 1 == len;
        if (here && i < file)
            return false;
        *count += here;
    }
    return true;
}

static void add_folder(struct offenders *o, const char *path, int count)
{
    char *folder = strndup(path, folder_length(path));
    offender_add(o, folder, 0, count, "%d .c files", count);
    free(folder);
}

int count_largest_folder(const struct house *h, struct offenders *o)
{
    int largest = 0, count;
    for (int i = 0; i < h->tree->sources; i++) {
        const char *path = h->tree->source[i].path;
        if (!is_product_code(&h->tree->source[i]) || !is_first_of_folder(h->tree, i, &count))
            continue;
        largest = count > largest ? count : largest;
        add_folder(o, path, count);
    }
    return largest;
}

int count_small_files(const struct house *h, struct offenders *o)
{
    int found = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        int lines = count_lines(s->raw);
        if (!is_product_code(s) || lines >= SMALL_LINES)
            continue;
        found++;
        offender_add(o, s->path, 0, 1, "%d lines", lines);
    }
    return found;
}

int count_large_files(const struct house *h, struct offenders *o)
{
    int found = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        int lines = count_lines(s->raw);
        if (!is_product(s->path) || lines <= LARGE_LINES)
            continue;
        found++;
        offender_add(o, s->path, 0, 1, "%d lines", lines);
    }
    return found;
}

/* A name that two .c files of one wing have. */
int count_double_files(const struct house *h, struct offenders *o)
{
    int found = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        for (int k = 0; is_product_code(s) && k < i; k++) {
            const struct source *other = &h->tree->source[k];
            bool same_wing = strncmp(s->path, other->path, strcspn(s->path, "/") + 1) == 0;
            if (!same_wing || strcmp(strrchr(s->path, '/'), strrchr(other->path, '/')) != 0)
                continue;
            found++;
            offender_add(o, s->path, 0, 1, "%s has its name too", other->path);
            break;
        }
    }
    return found;
}

int count_product_lines(const struct house *h, struct offenders *o)
{
    int all = 0;
    for (int i = 0; i < h->tree->sources; i++) {
        const struct source *s = &h->tree->source[i];
        int lines = is_product(s->path) ? count_lines(s->raw) : 0;
        all += lines;
        if (lines > 0)
            offender_add(o, s->path, 0, lines, "%d lines", lines);
    }
    return all;
}

/* ---- README.md ----------------------------------------------------------------------------------------- */

static char *read_readme(const struct house *h)
{
    char path[4096];
    size_t size;
    snprintf(path, sizeof path, "%s/README.md", h->tree->root);
    return read_file(path, &size);
}

int count_readme_lines(const struct house *h, struct offenders *o)
{
    char *text = read_readme(h);
    int lines = text ? count_lines(text) : 0;
    offender_add(o, "README.md", 0, lines, "%d lines", lines);
    free(text);
    return lines;
}

int count_readme_columns(const struct house *h, struct offenders *o)
{
    char *text = read_readme(h);
    int longest = 0, number = 1;
    for (const char *line = text; line && *line; number++) {
        size_t len = strcspn(line, "\n");
        int columns = count_columns(line, len);
        longest = columns > longest ? columns : longest;
        offender_add(o, "README.md", number, columns, "%d columns", columns);
        line += len + (line[len] == '\n');
    }
    free(text);
    return longest;
}
