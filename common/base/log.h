/* Log lines to stderr, one write(2) a line, so lines of several processes never tear each other; or to where
 * log_to() says.
 *
 * Any thread may log. The level and the name are set once by main() before a thread exists. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* horovodrun's names and order. */
#define LOG_LEVELS(X)                                                                                        \
    X(TRACE, "trace")                                                                                        \
    X(DEBUG, "debug")                                                                                        \
    X(INFO, "info")                                                                                          \
    X(WARNING, "warning")                                                                                    \
    X(ERROR, "error")                                                                                        \
    X(FATAL, "fatal")

#define LOG_LEVEL_NUMBER(level, name) LOG_##level,
enum log_level { LOG_LEVELS(LOG_LEVEL_NUMBER) };

/* `program` is printed before every line; it must stay valid. */
void log_init(const char *program, enum log_level level);
enum log_level log_level(void);
const char *log_level_name(enum log_level level);
bool log_enabled(enum log_level level);

/* Control characters become '?': what others said must not steer the terminal or look like a line of ours. */
void log_printable(char *text);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A line of ours that is no log line: formatted as it is, sent where log lines go. */
void log_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Whole lines go to `line` from now on, instead of being written here; NULL: written here again. It must be
 * called by the only thread that logs. */
void log_to(void (*line)(const char *bytes, size_t len));

/* Each log line of that level or above (not what log_say says) goes to `line` as well, whatever is written,
 * as a text without program and level. At most LOG_LISTENERS of them. Likewise. */
#define LOG_LISTENERS 2
void log_also(void (*line)(enum log_level level, const char *text), enum log_level least);

#define log_trace(...)   log_at(LOG_TRACE, __VA_ARGS__)
#define log_debug(...)   log_at(LOG_DEBUG, __VA_ARGS__)
#define log_info(...)    log_at(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_at(LOG_WARNING, __VA_ARGS__)
#define log_error(...)   log_at(LOG_ERROR, __VA_ARGS__)
#define log_at(level, ...)                                                                                   \
    do {                                                                                                     \
        if (log_enabled(level))                                                                              \
            log_write((level), __VA_ARGS__);                                                                 \
    } while (0)
