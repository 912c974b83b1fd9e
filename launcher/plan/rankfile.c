#include "launcher/plan/rankfile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/cli/config.h"
#include "launcher/plan/hosts.h"

#define CORES_MAX 65535 /* the highest number */
#define LIST_MAX  1024  /* pieces of one list */

struct reading {
    struct rankfile *file;
    const char *path;
    uint32_t line, room;
    const char *at;
};

static int refuse_line(const struct reading *r, struct err *e, const char *what)
{
    return err_set(e, ERR_USAGE, "%s, line %u: %s", r->path, r->line, what);
}

static void skip_blanks(struct reading *r)
{
    r->at += strspn(r->at, " \t\r");
}

static bool take_word(struct reading *r, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(r->at, word, len) != 0)
        return false;
    r->at += len;
    return true;
}

static bool take_number(struct reading *r, uint32_t max, uint32_t *out)
{
    uint64_t value = 0;
    if (!isdigit((unsigned char)*r->at))
        return false;
    for (; isdigit((unsigned char)*r->at) && value <= max; r->at++)
        value = value * 10 + (uint64_t)(*r->at - '0');
    *out = (uint32_t)value;
    return value <= max;
}

/* N, N-M or * */
static bool take_range(struct reading *r, uint32_t *first, uint32_t *last)
{
    *first = 0;
    *last = RANKFILE_LAST;
    if (take_word(r, "*"))
        return true;
    if (!take_number(r, CORES_MAX, first))
        return false;
    *last = *first;
    return !take_word(r, "-") || (take_number(r, CORES_MAX, last) && *last >= *first);
}

/* Pieces by comma, each with SOCKET: before it or in the socket of the one before. */
static int take_list(struct reading *r, struct rankfile_rank *rank, struct err *e)
{
    struct rankfile_cores c = {0};
    do {
        if (!take_range(r, &c.first, &c.last))
            return refuse_line(r, e, "the list of cores must be like 0-3, 1:0,2 or 0:*");
        if (take_word(r, ":")) {
            if (c.first != c.last)
                return refuse_line(r, e, "before ':' there must be the number of one socket");
            c.in_socket = true;
            c.socket = c.first;
            if (!take_range(r, &c.first, &c.last))
                return refuse_line(r, e, "the list of cores must be like 0-3, 1:0,2 or 0:*");
        }
        if (rank->count == LIST_MAX)
            return refuse_line(r, e, "the list of cores is too long");
        struct rankfile_cores *more = realloc(rank->cores, (rank->count + 1) * sizeof *more);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory for %s", r->path);
        rank->cores = more;
        rank->cores[rank->count++] = c;
    } while (take_word(r, ","));
    return 0;
}

/* The place for this rank. */
static struct rankfile_rank *find_rank(struct reading *r, uint32_t number, struct err *e)
{
    struct rankfile *f = r->file;
    if (number >= r->room) {
        uint32_t room = number < 32 ? 64 : 2 * number;
        struct rankfile_rank *more = realloc(f->rank, room * sizeof *more);
        if (!more) {
            err_set(e, ERR_MEMORY, "no memory for %s", r->path);
            return NULL;
        }
        memset(more + r->room, 0, (room - r->room) * sizeof *more);
        f->rank = more;
        r->room = room;
    }
    if (f->rank[number].line) {
        err_set(e, ERR_USAGE, "%s, line %u: rank %u has its place in line %u already", r->path, r->line,
                number, f->rank[number].line);
        return NULL;
    }
    f->count = number >= f->count ? number + 1 : f->count;
    return &f->rank[number];
}

static int take_host(struct reading *r, struct rankfile_rank *rank, struct err *e)
{
    size_t len = strcspn(r->at, " \t\r#");
    if (take_word(r, "+n"))
        return take_number(r, HOSTS_MAX, &rank->number)
                   ? 0
                   : refuse_line(r, e, "after +n the number of a host is missing");
    if (len == 0 || len > HOSTS_NAME_MAX)
        return refuse_line(r, e, "after = a host is missing");
    rank->host = strndup(r->at, len);
    r->at += len;
    return rank->host ? 0 : err_set(e, ERR_MEMORY, "no memory for %s", r->path);
}

/* rank N=HOST [slot=LIST] */
static int take_line(struct reading *r, struct err *e)
{
    uint32_t number;
    skip_blanks(r);
    if (!*r->at || *r->at == '#')
        return 0;
    if (!take_word(r, "rank"))
        return refuse_line(r, e, "expected rank N=HOST slot=CORES");
    skip_blanks(r);
    if (!take_number(r, CONFIG_RANKS_MAX - 1, &number))
        return refuse_line(r, e, "after rank there must be a number from 0");
    skip_blanks(r);
    if (!take_word(r, "="))
        return refuse_line(r, e, "expected rank N=HOST slot=CORES");
    skip_blanks(r);
    struct rankfile_rank *rank = find_rank(r, number, e);
    if (!rank || take_host(r, rank, e) < 0)
        return -1;
    rank->line = r->line;
    skip_blanks(r);
    if ((take_word(r, "slots=") || take_word(r, "slot=")) && take_list(r, rank, e) < 0)
        return -1;
    skip_blanks(r);
    return !*r->at || *r->at == '#'
               ? 0
               : refuse_line(r, e, "expected slot=CORES or the end of the line behind the host");
}

static int check_complete(const struct rankfile *f, struct err *e)
{
    if (f->count == 0)
        return err_set(e, ERR_USAGE, "%s: there is no rank in it", f->path);
    for (uint32_t i = 0; i < f->count; i++)
        if (!f->rank[i].line)
            return err_set(e, ERR_USAGE, "%s: rank %u has no line, and rank %u has one", f->path, i,
                           f->count - 1);
    return 0;
}

static int take_lines(struct reading *r, const char *bytes, size_t len, struct err *e)
{
    const char *end = bytes + len;
    for (const char *next; bytes < end; bytes = next + 1) {
        char line[4096];
        next = memchr(bytes, '\n', (size_t)(end - bytes));
        next = next ? next : end;
        r->line++;
        if ((size_t)(next - bytes) >= sizeof line || memchr(bytes, '\0', (size_t)(next - bytes)))
            return refuse_line(r, e, "the line is too long, or no text");
        memcpy(line, bytes, (size_t)(next - bytes));
        line[next - bytes] = '\0';
        r->at = line;
        if (take_line(r, e) < 0)
            return -1;
    }
    return check_complete(r->file, e);
}

struct rankfile *rankfile_parse(const char *bytes, size_t len, const char *path, struct err *e)
{
    struct rankfile *f = calloc(1, sizeof *f);
    struct reading r = {.file = f, .path = path};
    if (f)
        f->path = strdup(path);
    if (f && f->path && take_lines(&r, bytes, len, e) == 0)
        return f;
    if (!f || !f->path)
        err_set(e, ERR_MEMORY, "no memory for %s", path);
    rankfile_free(f);
    return NULL;
}

struct rankfile *rankfile_read(const char *path, struct err *e)
{
    size_t len;
    char *bytes = hosts_load("rankfile", path, &len, e);
    struct rankfile *f = bytes ? rankfile_parse(bytes, len, path, e) : NULL;
    free(bytes);
    return f;
}

void rankfile_free(struct rankfile *f)
{
    if (!f)
        return;
    for (uint32_t i = 0; i < f->count; i++) {
        free(f->rank[i].host);
        free(f->rank[i].cores);
    }
    free(f->rank);
    free(f->path);
    free(f);
}
