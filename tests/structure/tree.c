/* Reading the tree: files, without what a compiler does not look at, and the includes of each. */
#include "tests/structure/structure.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *grow(void *memory, size_t size)
{
    void *larger = realloc(memory, size);
    if (!larger) {
        fprintf(stderr, "structure: no memory\n");
        exit(2);
    }
    return larger;
}

char *read_file(const char *path, size_t *size)
{
    size_t used = 0, room = 1 << 16, n;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *bytes = grow(NULL, room);
    while ((n = fread(bytes + used, 1, room - used - 1, file)) > 0) {
        used += n;
        if (room - used < 2)
            bytes = grow(bytes, room *= 2);
    }
    bytes[used] = '\0';
    fclose(file);
    *size = used;
    return bytes;
}

static void add_include(struct source *s, const char *name, size_t len, int line)
{
    s->include = grow(s->include, sizeof *s->include * (size_t)(s->includes + 1));
    s->include_line = grow(s->include_line, sizeof *s->include_line * (size_t)(s->includes + 1));
    s->include[s->includes] = strndup(name, len);
    s->include_line[s->includes++] = line;
}

/* Finds #include lines; `<...>` keeps its brackets so that it cannot be taken for one of ours. */
static void find_includes(struct source *s)
{
    int line = 1;
    for (char *at = s->text; *at; line++) {
        char *end = strchr(at, '\n'), *p = at;
        size_t len = end ? (size_t)(end - at) : strlen(at);
        while (*p == ' ' || *p == '\t')
            p++;
        if (*p == '#') {
            p++;
            while (*p == ' ' || *p == '\t')
                p++;
            if (strncmp(p, "include", 7) == 0) {
                char *open = p + 7 + strspn(p + 7, " \t");
                char *close = *open == '<' ? strchr(open, '>') : *open == '"' ? strchr(open + 1, '"') : NULL;
                if (close && close < at + len)
                    add_include(s, *open == '<' ? open : open + 1,
                                (size_t)(close - open) + (*open == '<') - (*open != '<'), line);
            }
        }
        at += len + (end != NULL);
    }
}

static char *skip_literal(char *p)
{
    char quote = *p++;
    for (; *p && *p != quote && *p != '\n'; p++) {
        if (*p == '\\' && p[1] && p[1] != '\n')
            *p++ = ' ';
        *p = ' ';
    }
    return *p == quote ? p + 1 : p;
}

static char *blank_comment(char *p)
{
    bool block = p[1] == '*';
    for (bool first = true; *p; p++, first = false) {
        if (!block && *p == '\n')
            return p;
        if (block && !first && p[0] == '*' && p[1] == '/') {
            p[0] = p[1] = ' ';
            return p + 2;
        }
        if (*p != '\n')
            *p = ' ';
    }
    return p;
}

/* Blanks comments, then, once the includes are known, strings and characters; lines stay where they are. */
static void blank(struct source *s, bool literals)
{
    for (char *p = s->text; *p;) {
        if (p[0] == '/' && (p[1] == '*' || p[1] == '/')) {
            p = blank_comment(p);
        } else if (*p == '"' || *p == '\'') {
            char *from = p;
            if (literals) {
                p = skip_literal(p);
            } else {
                for (p++; *p && *p != *from && *p != '\n'; p++)
                    if (*p == '\\' && p[1])
                        p++;
                p += *p == *from;
            }
        } else {
            p++;
        }
    }
}

/* "a/b" in new memory. */
static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 2;
    char *path = grow(NULL, size);
    snprintf(path, size, "%s/%s", a, b);
    return path;
}

static void add_source(struct tree *t, const char *path)
{
    char *full = join(t->root, path);
    size_t size;
    t->source = grow(t->source, sizeof *t->source * (size_t)(t->sources + 1));
    struct source *s = &t->source[t->sources++];
    *s = (struct source){.path = strdup(path), .raw = read_file(full, &size), .text = read_file(full, &size)};
    if (!s->raw || !s->text) {
        fprintf(stderr, "structure: cannot read %s\n", full);
        exit(2);
    }
    free(full);
    blank(s, false);
    find_includes(s);
    blank(s, true);
}

static bool is_source(const char *name)
{
    size_t len = strlen(name);
    return len > 2 && name[len - 2] == '.' && (name[len - 1] == 'c' || name[len - 1] == 'h');
}

static void walk(struct tree *t, const char *dir)
{
    struct dirent **entry;
    char *full = join(t->root, dir);
    int n = scandir(full, &entry, NULL, alphasort);
    free(full);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        char *path = *dir ? join(dir, name) : strdup(name);
        if (entry[i]->d_type == DT_DIR) {
            if (*name != '.' && strcmp(name, "samples") != 0 && strncmp(name, "build", 5) != 0)
                walk(t, path);
        } else if (is_source(name)) {
            add_source(t, path);
        }
        free(path);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->path, ((const struct source *)b)->path);
}

void tree_read(struct tree *t, const char *root)
{
    *t = (struct tree){.root = strdup(root)};
    walk(t, "");
    if (t->sources > 0)
        qsort(t->source, (size_t)t->sources, sizeof *t->source, compare_paths);
    if (t->sources == 0) {
        fprintf(stderr, "structure: no sources in %s\n", root);
        exit(2);
    }
}

void tree_free(struct tree *t)
{
    for (int i = 0; i < t->sources; i++) {
        for (int k = 0; k < t->source[i].includes; k++)
            free(t->source[i].include[k]);
        free(t->source[i].include);
        free(t->source[i].include_line);
        free(t->source[i].raw);
        free(t->source[i].text);
        free(t->source[i].path);
    }
    free(t->source);
    free(t->root);
}

const struct source *tree_find(const struct tree *t, const char *path)
{
    struct source wanted = {.path = (char *)path};
    return bsearch(&wanted, t->source, (size_t)t->sources, sizeof *t->source, compare_paths);
}

bool is_product(const char *path)
{
    static const char *const wing[] = {"launcher/", "agent/", "common/", "collectives/"};
    for (size_t i = 0; i < sizeof wing / sizeof *wing; i++)
        if (strncmp(path, wing[i], strlen(wing[i])) == 0)
            return true;
    return false;
}

bool is_header(const char *path)
{
    return path[strlen(path) - 1] == 'h';
}

size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) : 0;
}

int count_columns(const char *line, size_t len)
{
    int columns = 0;
    for (size_t i = 0; i < len; i++)
        columns += ((unsigned char)line[i] & 0xc0) != 0x80;
    return columns;
}

int count_lines(const char *text)
{
    int lines = 0;
    for (; (text = strchr(text, '\n')); text++)
        lines++;
    return lines;
}

const struct source *tree_resolve(const struct tree *t, const struct source *from, const char *name)
{
    const struct source *found = tree_find(t, name);
    const char *slash = strrchr(from->path, '/');
    if (found || !slash)
        return found;
    char *dir = strndup(from->path, (size_t)(slash - from->path)), *path = join(dir, name);
    found = tree_find(t, path);
    free(path);
    free(dir);
    return found || strcmp(name, "hvd.h") != 0 ? found : tree_find(t, "collectives/hvd.h");
}
