/* Module `systemd`: what a managed agent needs of libsystemd, so that no program of ours is linked to it.
 *
 * Units are asked for over systemd's own socket, /run/systemd/private, which is root's and speaks the
 * protocol of D-Bus without a bus: tried with systemd 252 on a host without any bus, it passes descriptors,
 * starts transient units, and sends every signal without a subscription. So a managed agent needs no
 * dbus-daemon, and being uid 0 is enough: systemd asks for no capability there. That connection ends when
 * systemd executes itself anew (systemctl daemon-reexec). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

#define SYSTEMD_MODULE "systemd"
#define SYSTEMD_SYMBOL "hvd_systemd_ops"

/* A transient service. Its processes are in a cgroup of their own that is its user's to divide, and what is
 * left of them when its first process ends is killed. */
struct systemd_service {
    const char *name; /* "NAME.service" */
    const char *description;
    char *const *argv; /* an absolute path, arguments, NULL */
    const char *user;  /* a name or a number; its groups are those of the user database */
    const char *slice;
    const char *pam;    /* the PAM service that opens a session for it; NULL: none */
    uint64_t tasks_max; /* 0: no limit but the slice's */
    int fd[3];          /* its stdin, stdout and stderr; they stay the caller's */
};

/* Called from process() only. */
struct systemd_events {
    /* The service was executed, or (`failure`, a text) was not. Once for each start(). */
    void (*started)(void *ctx, const char *unit, const char *failure);
    /* Whether removed() is wanted for it. */
    bool (*watches)(void *ctx, const char *unit);
    /* systemd has no such unit any more: nothing of it is left. When it reads all units anew (daemon-reload)
     * it says of each that it is removed, so it is asked again before this is believed. */
    void (*removed)(void *ctx, const char *unit);
};

struct systemd;

struct systemd_ops {
    /* The protocol of services; these do nothing in a process that systemd did not start. */
    int (*listen_fds)(void);           /* sockets that were passed, from descriptor 3 on */
    void (*notify)(const char *state); /* "READY=1" */
    uint64_t (*watchdog_us)(void);     /* how often WATCHDOG=1 is expected; 0: never */

    /* NULL with *e when systemd cannot be reached, as everywhere but under systemd and as root. */
    struct systemd *(*open)(const struct systemd_events *events, void *ctx, struct err *e);
    void (*close)(struct systemd *s);
    /* Says what the caller must wait for before process(): returns a descriptor, and fills events of poll(2)
     * and microseconds from now (-1: no limit). */
    int (*wait_for)(struct systemd *s, int *poll_events, int64_t *us);
    /* Handles what has come. -1 with *e when the connection has ended. */
    int (*process)(struct systemd *s, struct err *e);
    /* Asks for it; started() follows. -1 with *e when it cannot even be asked for. */
    int (*start)(struct systemd *s, const struct systemd_service *service, struct err *e);
    /* Calls `see` with each unit that has such a name ("hvd-*.service") and has not ended; waits for
     * systemd's answer. */
    int (*list)(struct systemd *s, const char *pattern, void (*see)(void *ctx, const char *unit), void *ctx,
                struct err *e);
};
