/* Errors: a short code for logic, a sentence for people.
 *
 * A function that can fail takes a `struct err *` as its last argument and returns -1 (or NULL) after filling
 * it. The first error wins: a second err_set on a filled one is ignored, so clean-up code can never hide the
 * cause. Callers on the way up say what they attempted with err_wrap. Only main() exits; err_exit_status
 * tells with what. */
#pragma once

#include <stddef.h>

enum err_code {
    ERR_NONE = 0,
    ERR_USAGE,          /* the command line, a file or a variable of the user is wrong */
    ERR_SYSTEM,         /* a system call failed */
    ERR_MEMORY,         /* no memory, or a configured ceiling was reached */
    ERR_PROTOCOL,       /* a peer sent what it may not */
    ERR_VERSION,        /* a peer speaks another version */
    ERR_HOST,           /* a host cannot be used: unreachable, refused, agent missing */
    ERR_UNSUPPORTED,    /* this library cannot do it; another way may */
    ERR_TIMEOUT,        /* a wait ended by its deadline */
    ERR_NOT_FOUND,      /* the command does not exist (127) */
    ERR_NOT_EXECUTABLE, /* the command exists but cannot be run (126) */
    ERR_CLOSED,         /* the peer has gone */
    ERR_CORRUPTED,      /* bytes changed on their way */
    ERR_BUSY            /* others have what is wanted; later there may be room */
};

#define ERR_TEXT_MAX 768
#define ERR_HINT_MAX 384

struct err {
    enum err_code code;
    char text[ERR_TEXT_MAX]; /* one line, no newline at its end */
    char hint[ERR_HINT_MAX]; /* the remedy, or empty; one line */
};

#define ERR_INIT                                                                                             \
    {                                                                                                        \
        0                                                                                                    \
    }

/* Fills *e unless it already holds an error (the first one wins). Always returns -1. `e` may be NULL. */
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* As err_set with ERR_SYSTEM and ": <text of errnum>" at the end. */
int err_sys(struct err *e, int errnum, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "<what was attempted>: " before the text of a filled error. Always returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sets the hint line of a filled error that has none yet. Always returns -1. */
int err_hint(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Makes *e empty again. */
void err_clear(struct err *e);
/* The exit status of a program of ours that ends with this error: 2, 124, 125, 126 or 127. */
int err_exit_status(const struct err *e);
