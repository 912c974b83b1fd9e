#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_OF(level, name) name,
static const char *const names[] = {LOG_LEVELS(NAME_OF)};
static const char *program_name = "hvd";
static enum log_level lowest = LOG_WARNING;
static void (*taker)(const char *bytes, size_t len);
static struct listener {
    void (*line)(enum log_level level, const char *text);
    enum log_level least;
} listener[LOG_LISTENERS];
static size_t listeners;
static enum log_level least_wanted = LOG_FATAL; /* by a listener */

const char *log_level_name(enum log_level level)
{
    return names[level];
}

void log_init(const char *program, enum log_level level)
{
    program_name = program;
    lowest = level;
}

enum log_level log_level(void)
{
    return lowest;
}

bool log_enabled(enum log_level level)
{
    return level >= lowest || (listeners > 0 && level >= least_wanted);
}

void log_printable(char *text)
{
    for (; *text; text++) {
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            *text = '?';
        if ((unsigned char)*text == 0xc2 && ((unsigned char)text[1] & 0xe0) == 0x80)
            text[0] = text[1] = '?'; /* U+0080 to U+009F steer a terminal, too */
    }
}

void log_to(void (*line)(const char *bytes, size_t len))
{
    taker = line;
}

void log_also(void (*line)(enum log_level level, const char *text), enum log_level least)
{
    if (listeners == LOG_LISTENERS)
        return;
    listener[listeners++] = (struct listener){line, least};
    least_wanted = least < least_wanted ? least : least_wanted;
}

static void put_line(const char *bytes, size_t len)
{
    if (taker) {
        taker(bytes, len);
        return;
    }
    /* A log line that cannot be written has nowhere else to go. */
    ssize_t ignored = write(STDERR_FILENO, bytes, len);
    (void)ignored;
}

void log_say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char text[2048];
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= (int)sizeof text) {
        n = sizeof text - 1;
        text[n - 1] = '\n';
    }
    if (n > 0)
        put_line(text, (size_t)n);
}

void log_write(enum log_level level, const char *fmt, ...)
{
    char line[1024];
    va_list args;
    int used = snprintf(line, sizeof line, "%s: %s: ", program_name, names[level]);
    va_start(args, fmt);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, fmt, args);
    va_end(args);
    log_printable(line);
    size_t len = (size_t)used + (more > 0 ? (size_t)more : 0);
    if (len > sizeof line - 2)
        len = sizeof line - 2;
    for (size_t i = 0; i < listeners; i++)
        if (level >= listener[i].least)
            listener[i].line(level, line + used);
    if (level < lowest)
        return;
    line[len++] = '\n';
    put_line(line, len);
}
