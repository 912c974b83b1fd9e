/* The rules about sources. Each is a table; a change of the design is a change of a row here. */
#include "tests/structure/structure.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTION_LINES 70

/* The directions of includes, by the beginning of paths from the top. The first row whose `from` fits a file
 * is its row; words are separated by spaces. Tests may include anything. */
static const struct {
    const char *from;
    const char *may;
} direction[] = {
    {"common/", "common/"},
    {"launcher/", "common/ launcher/"},
    {"agent/", "common/ agent/"},
    {"collectives/hvd.h", ""},
    {"collectives/kernels/", "common/ collectives/hvd.h collectives/kernels/"},
    {"collectives/shm/", "common/ collectives/hvd.h collectives/shm/ collectives/kernels/"},
    {"collectives/local/",
     "common/ collectives/hvd.h collectives/shm/ collectives/kernels/ collectives/local/"},
    {"collectives/algorithms/", "common/ collectives/hvd.h collectives/kernels/ collectives/algorithms/"},
    {"collectives/gpu/", "common/ collectives/hvd.h collectives/gpu/ collectives/kernels/dtype."},
    {"collectives/client/", "common/ collectives/hvd.h collectives/shm/ collectives/local/ collectives/gpu/ "
                            "collectives/kernels/ collectives/client/"},
    {"collectives/backends/", "common/ collectives/hvd.h collectives/kernels/ collectives/algorithms/ "
                              "collectives/backends/"},
    {"collectives/engine/",
     "common/ collectives/hvd.h collectives/shm/ collectives/local/ collectives/kernels/ "
     "collectives/algorithms/ collectives/backends/ collectives/gpu/ "
     "collectives/engine/"},
    {"examples/", "collectives/hvd.h examples/"},
    {"python/", "collectives/hvd.h python/"},
};

/* Headers of libraries: only these folders may reach them, directly or through our own headers. */
static const struct {
    const char *header;
    const char *may;
} library[] = {
    {"<uv.h>", "common/ launcher/ agent/"},
    {"<libssh2", "launcher/transport/ssh/"},
    {"<openssl/", "common/modules/ launcher/transport/ssh/"},
    {"<yaml.h>", "common/modules/"},
    {"<systemd/", "common/modules/"},
    {"<microhttpd", "agent/rendezvous/gloo/gloo_http. agent/daemon/metrics/metrics_http."},
    {"<hwloc", "agent/worker/topology_hwloc. agent/rendezvous/pmix_server/"},
    {"<protobuf-c/", "common/"},
    {"<check.h>", ""},
    {"<pmix", "agent/rendezvous/pmix_server/"},
};

static const struct {
    const char *name;
    const char *instead;
} banned[] = {
    {"strcpy", "snprintf"}, {"strcat", "snprintf"}, {"sprintf", "snprintf"}, {"vsprintf", "vsnprintf"},
    {"gets", "fgets"},      {"atoi", "strtol"},     {"atol", "strtol"},      {"atoll", "strtoll"},
    {"atof", "strtod"},     {"strtok", "strcspn"},  {"system", "spawn.h"},   {"popen", "spawn.h"},
    {"alloca", "malloc"},   {"tmpnam", "mkdtemp"},  {"mktemp", "mkdtemp"},
};

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* Whether `path` begins with one of the words. */
static bool begins_with_one(const char *path, const char *words)
{
    char word[256];
    while (*words) {
        size_t len = strcspn(words, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, words);
        if (begins(path, word))
            return true;
        words += len;
        words += *words == ' ';
    }
    return false;
}

static void check_directions(const struct tree *t, const struct source *s, struct report *r)
{
    size_t row = 0;
    while (row < sizeof direction / sizeof *direction && !begins(s->path, direction[row].from))
        row++;
    if (row == sizeof direction / sizeof *direction)
        return;
    for (int i = 0; i < s->includes; i++) {
        const struct source *to = tree_resolve(t, s, s->include[i]);
        /* Generated headers are not in the tree: by their name. */
        const char *path = to ? to->path : s->include[i];
        if (*path != '<' && !begins_with_one(path, direction[row].may))
            report_add(r, RULE_INCLUDE_DIRECTION, "%s:%d: %s may not include %s", s->path, s->include_line[i],
                       direction[row].from, path);
    }
}

/* Says the way to a header that `s` reaches, or false. `seen` has a mark for each source. */
static bool reaches(const struct tree *t, const struct source *s, const char *header, bool *seen, char *way,
                    size_t size)
{
    if (seen[s - t->source])
        return false;
    seen[s - t->source] = true;
    for (int i = 0; i < s->includes; i++) {
        const struct source *next = tree_resolve(t, s, s->include[i]);
        if (begins(s->include[i], header) || (next && reaches(t, next, header, seen, way, size))) {
            size_t used = strlen(way);
            snprintf(way + used, size - used, " <- %s", s->path);
            return true;
        }
    }
    return false;
}

static void check_libraries(const struct tree *t, const struct source *s, struct report *r)
{
    for (size_t row = 0; row < sizeof library / sizeof *library; row++) {
        if (begins(s->path, "tests/") || begins_with_one(s->path, library[row].may))
            continue;
        bool *seen = grow(NULL, (size_t)t->sources);
        char way[1024];
        memset(seen, 0, (size_t)t->sources);
        snprintf(way, sizeof way, "%s", library[row].header);
        if (reaches(t, s, library[row].header, seen, way, sizeof way))
            report_add(r, RULE_LIBRARY_HEADER, "%s: may not use %s (%s)", s->path, library[row].header, way);
        free(seen);
    }
}

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The next identifier that is called or declared at or after `p`; NULL at the end. A member's name is none.
 */
static const char *next_call(const char *p, size_t *len, int *line)
{
    while (*p) {
        if (is_word(*p)) {
            const char *from = p;
            while (is_word(*p))
                p++;
            const char *after = p;
            while (*after == ' ')
                after++;
            bool member = from[-1] == '.' || (from[-1] == '>' && from[-2] == '-');
            if (*after == '(' && !member) {
                *len = (size_t)(p - from);
                return from;
            }
        } else {
            *line += *p == '\n';
            p++;
        }
    }
    return NULL;
}

static bool is(const char *name, size_t len, const char *word)
{
    return strlen(word) == len && memcmp(name, word, len) == 0;
}

static void check_calls(const struct source *s, struct report *r)
{
    const char *slash = strrchr(s->path, '/');
    bool may_exit = begins(s->path, "tests/") || strcmp(slash ? slash + 1 : s->path, "main.c") == 0;
    int line = 1;
    size_t len = 0;
    if (!*s->text)
        return;
    for (const char *p = s->text + 1; (p = next_call(p, &len, &line)); p += len) {
        for (size_t i = 0; i < sizeof banned / sizeof *banned; i++)
            if (is(p, len, banned[i].name))
                report_add(r, RULE_BANNED_CALL, "%s:%d: %s(); use %s", s->path, line, banned[i].name,
                           banned[i].instead);
        if (!may_exit && is(p, len, "exit"))
            report_add(r, RULE_BANNED_CALL, "%s:%d: only a main.c ends the program", s->path, line);
    }
}

/* A function begins with a `{` alone in the first column and ends with a `}` there: the format has it so. */
static void check_lengths(const struct source *s, struct report *r)
{
    int line = 1, from = 0;
    for (const char *p = s->text; *p; p++) {
        if (*p != '\n')
            continue;
        line++;
        if (p[1] == '{' && p[2] == '\n')
            from = line;
        if (p[1] == '}' && from) {
            if (line - from > FUNCTION_LINES)
                report_add(r, RULE_LENGTH, "%s:%d: a function of %d lines", s->path, from, line - from);
            from = 0;
        }
    }
}

void check_sources(const struct tree *t, struct report *r)
{
    for (int i = 0; i < t->sources; i++) {
        check_directions(t, &t->source[i], r);
        check_libraries(t, &t->source[i], r);
        check_calls(&t->source[i], r);
        check_lengths(&t->source[i], r);
    }
}
