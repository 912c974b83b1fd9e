/* Lines in systemd's journal with fields beside them, by its own protocol: one datagram each, "NAME=value"
 * lines. A line is lost when the journal is busy. A warning or worse waits a moment for the journal, but only
 * one of them in a second where the journal takes nothing at all.
 *
 * A value cannot become a field or a line of its own: its control characters are '?'. At most
 * JOURNAL_BURST lines in a second, and as many of those that are warnings or worse, so that no flood of news
 * hides a failure; the next line says how many were left out. The journal has a limit of its own for each
 * unit (LogRateLimitBurst=), which counts only lines of the unit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define JOURNAL_BURST 50
#define JOURNAL_INFO  6 /* priorities of syslog(3) */
#define JOURNAL_WARN  4
#define JOURNAL_ERROR 3

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

struct journal {
    const char *socket;
    int fd;
    uint64_t since;            /* of the second that is counted */
    uint32_t lines[2];         /* in it: news, and what is worse */
    uint32_t unsaid;           /* lines that were left out since the last one */
    uint64_t busy;             /* when it last took none although we waited; 0: it took the next one */
    const char *const *fields; /* of every line: "NAME=value" each, ended by NULL; stay the caller's */
};

#define JOURNAL_INIT                                                                                         \
    {                                                                                                        \
        .socket = JOURNAL_SOCKET, .fd = -1                                                                   \
    }

/* `fields`: more of them, or NULL. False: there is no journal. */
bool journal_line(struct journal *j, int priority, const char *text, const char *const *fields);
