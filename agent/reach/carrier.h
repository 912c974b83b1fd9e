/* A connection between `hvdagent reach` (on hvdrun's host) and `hvdagent wait` (on a host that nothing else
 * can reach). The connection carries one command, with input, output, errors and exit status.
 *
 *   reach                                   wait
 *     TLS 1.3 with the key of the job  <--->  (common/net/tls.h)
 *     COMMAND  ---------------------------->  runs it with /bin/sh
 *     INPUT, INPUT_ENDS  ------------------>  its standard input
 *              <----------------------------  RUNS
 *              <----------------------------  OUTPUT, ERRORS
 *              <----------------------------  STATUS, the last one
 *
 * A frame is its kind (1 byte), a length (4 bytes, little endian) and so many bytes. Nothing is read before
 * both ends have shown that they know the key. Not thread-safe; the socket never blocks. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/net/tls.h"

#define CARRIER_PORT       7411
#define CARRIER_BYTES_MAX  (64u << 10) /* in a frame */
#define CARRIER_CONNECT_MS 10000       /* for a stranger to become a friend */

enum carrier_kind {
    CARRIER_COMMAND = 1,
    CARRIER_INPUT,
    CARRIER_INPUT_ENDS,
    CARRIER_OUTPUT,
    CARRIER_ERRORS,
    CARRIER_RUNS,
    CARRIER_STATUS
};

struct carrier_frame {
    enum carrier_kind kind;
    const uint8_t *bytes; /* valid until carrier_drop */
    uint32_t length;
};

struct carrier {
    int fd;
    const struct tls_ops *ops;
    struct tls *tls;
    struct buf in, out;
};

/* The secret of the connection from the file of the key: at least 16 bytes, which no stranger may write. */
int carrier_read_key(const char *path, uint8_t secret[TLS_SECRET_SIZE], struct err *e);
/* Takes the connected socket, also on failure. */
int carrier_open(struct carrier *c, int fd, const uint8_t secret[TLS_SECRET_SIZE], bool client,
                 struct err *e);
void carrier_close(struct carrier *c);
/* The events of poll(2) to wait for. */
short carrier_events(const struct carrier *c);
/* True while one more frame fits. */
bool carrier_has_room(const struct carrier *c);
/* At most CARRIER_BYTES_MAX bytes, when there is room. */
void carrier_put(struct carrier *c, enum carrier_kind kind, const void *bytes, uint32_t length);
/* Sends and receives what can be sent and received now. -1 with *e: the connection has ended. */
int carrier_move(struct carrier *c, struct err *e);
/* 1: the next frame; 0: there is none yet; -1 with *e: the other end sends something else. */
int carrier_next(const struct carrier *c, struct carrier_frame *frame, struct err *e);
void carrier_drop(struct carrier *c, const struct carrier_frame *frame);
/* All that was put has been sent. */
bool carrier_is_empty(const struct carrier *c);
