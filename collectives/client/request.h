/* A call's arguments: the checks that all calls share, and the way of the checked request. */
#pragma once

#include "collectives/client/operation.h"

/* A request without buffers. */
int request_make(struct request *r, uint8_t kind, uint64_t count, int dtype, int op,
                 const hvd_options *options);
int request_check_buffers(const void *in, uint64_t in_bytes, const void *out, uint64_t out_bytes,
                          bool may_be_same);
/* Checks a request. On success its tensor is locked. */
int request_begin(const char *name, struct request *r, struct tensor **t);
/* Puts the tensor's name before the sentence of a request that was refused. Returns `status`. */
int request_name_tensor(const char *name, int status);
/* Checks and submits a request. `status` is that of making it: if that failed, only its group is freed. */
int request_async(const char *name, struct request *r, int status, hvd_handle *handle);
int request_and_wait(const char *name, struct request *r, int status);
