/* Questions of this process to its host's engine, one at a time. */
#pragma once

#include "collectives/shm/worker_socket.h"
#include "common/base/log.h"

/* Asks one question; the answer replaces *m. fds_out: receives the answer's descriptors, at most *number of
 * them, and *number becomes their number; the caller owns them. Returns HVD_SUCCESS, HVD_ERR_ENGINE, or the
 * engine's status with its sentence. */
int rpc(struct worker_message *m, int fd_in, int *fds_out, unsigned *number);
int rpc_simple(uint32_t type);
/* This rank cannot do its part of an operation that others have begun: the job ends. */
void rpc_failed(const char *why);
/* A line of the engine's log. A job of one rank has no engine and must not call this. */
void rpc_note(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
