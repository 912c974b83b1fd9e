#include "launcher/io/output_names.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LETTERS "rhnjs%"

static bool has_letter(const char *name, char letter)
{
    for (const char *p = name; (p = strchr(p, '%')); p += 2)
        if (p[1] == letter)
            return true;
    return false;
}

int output_names_check(const char *name, struct err *e)
{
    for (const char *p = name; (p = strchr(p, '%')); p += 2) {
        if (p[1] && strchr(LETTERS, p[1]))
            continue;
        err_set(e, ERR_USAGE, "--output-filename %s: %.2s stands for nothing", name, p);
        return err_hint(e, "%%r is the rank, %%h its host, %%n its host's number, %%j the job, %%s stdout or "
                           "stderr; %%%% is a %%");
    }
    if (!strchr(name, '%') || has_letter(name, 'r'))
        return 0;
    err_set(e, ERR_USAGE, "--output-filename %s: all ranks would write into the same file", name);
    return err_hint(e, "put %%r, the rank, into the name");
}

static const char *stream_name(enum frame_stream stream)
{
    return stream == STREAM_STDERR ? "stderr" : "stdout";
}

/* The text for one letter; numbers are written into `digits`. */
static const char *text_of(char letter, const struct output_owner *owner, char *digits, size_t size)
{
    int width = snprintf(NULL, 0, "%u", owner->size - 1);
    switch (letter) {
    case 'r':
        snprintf(digits, size, "%0*u", width, owner->rank);
        return digits;
    case 'n':
        snprintf(digits, size, "%u", owner->host_index);
        return digits;
    case 'h':
        return owner->host;
    case 'j':
        return owner->job;
    case 's':
        return stream_name(owner->stream);
    default:
        return "%";
    }
}

int output_name(const char *name, const struct output_owner *owner, char *out, size_t size, struct err *e)
{
    char digits[24], plain[2] = "";
    size_t used = 0;
    for (const char *p = name; *p && used < size; p++) {
        plain[0] = *p;
        const char *text = *p == '%' ? text_of(*++p, owner, digits, sizeof digits) : plain;
        used += (size_t)snprintf(out + used, size - used, "%s", text);
    }
    if (used < size && !strchr(name, '%'))
        used += (size_t)snprintf(out + used, size - used, "/rank.%s/%s",
                                 text_of('r', owner, digits, sizeof digits), stream_name(owner->stream));
    else if (used < size && !has_letter(name, 's'))
        used +=
            (size_t)snprintf(out + used, size - used, "%s", owner->stream == STREAM_STDERR ? ".err" : ".out");
    if (used >= size)
        return err_set(e, ERR_USAGE, "--output-filename: the path is too long");
    return 0;
}
