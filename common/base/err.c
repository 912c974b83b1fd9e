#include "common/base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Text from a peer or a file may hold anything: a message stays one printable line. */
static void make_one_line(char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
        if ((unsigned char)*text == 0xc2 && ((unsigned char)text[1] & 0xe0) == 0x80)
            text[0] = text[1] = ' '; /* U+0080 to U+009F steer a terminal, too */
    }
}

static void format_text(char *out, size_t size, const char *fmt, va_list args)
{
    vsnprintf(out, size, fmt, args);
    make_one_line(out);
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    if (!e || e->code)
        return -1;
    e->code = code;
    va_list args;
    va_start(args, fmt);
    format_text(e->text, sizeof e->text, fmt, args);
    va_end(args);
    return -1;
}

int err_sys(struct err *e, int errnum, const char *fmt, ...)
{
    if (!e || e->code)
        return -1;
    e->code = ERR_SYSTEM;
    va_list args;
    va_start(args, fmt);
    format_text(e->text, sizeof e->text, fmt, args);
    va_end(args);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", strerror(errnum));
    return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e || !e->code)
        return -1;
    char old[ERR_TEXT_MAX];
    memcpy(old, e->text, sizeof old);
    va_list args;
    va_start(args, fmt);
    format_text(e->text, sizeof e->text, fmt, args);
    va_end(args);
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %.*s", (int)sizeof old, old);
    return -1;
}

int err_hint(struct err *e, const char *fmt, ...)
{
    if (!e || !e->code || e->hint[0])
        return -1;
    va_list args;
    va_start(args, fmt);
    format_text(e->hint, sizeof e->hint, fmt, args);
    va_end(args);
    return -1;
}

void err_clear(struct err *e)
{
    e->code = ERR_NONE;
    e->text[0] = e->hint[0] = '\0';
}

int err_exit_status(const struct err *e)
{
    switch (e->code) {
    case ERR_NONE:
        return 0;
    case ERR_USAGE:
        return 2;
    case ERR_TIMEOUT:
        return 124;
    case ERR_NOT_EXECUTABLE:
        return 126;
    case ERR_NOT_FOUND:
        return 127;
    default:
        return 125;
    }
}
