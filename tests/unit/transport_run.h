/* Runs one transport to its closed() and keeps what it reported. */
#pragma once

#include <stdbool.h>

#include "launcher/transport/transport.h"

struct transport_run {
    const struct transport_ops *ops;
    struct transport *t;
    uv_loop_t loop;
    uv_timer_t watchdog;
    /* Orders; set before run_transport. */
    size_t to_send;       /* bytes of a pattern, then, */
    const char *greeting; /* or this text, when opened */
    size_t close_after;   /* close() once so many bytes have come; 0: only when closing is asked below */
    bool close_when_sent;
    bool close_when_opened;
    bool quit_on_reply;      /* close() when a newline arrived */
    unsigned close_in_phase; /* 1 << phase: close() when it begins */
    unsigned stall_us;       /* how long the first noise holds the loop up */
    /* Results. */
    unsigned phases; /* 1 << phase */
    enum transport_phase last_phase;
    int opened, closed;
    size_t sent, received;
    uint64_t checksum; /* FNV of what was received */
    char text[4096];   /* its beginning */
    char noise[4096];
    char peer[64];
    int exit_status, term_signal;
    struct err err;
    struct err start_err;
    bool started, in_call;
};

/* False when start() refused; start_err tells why. */
bool run_transport(struct transport_run *r, const struct transport_target *target);
uint64_t pattern_checksum(size_t len);
