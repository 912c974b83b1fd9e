/* The list of all ranks with a port each, as TensorFlow and PaddlePaddle want it. Pure.
 *
 * The list is the same for all ranks and is put together once; a rank's TF_CONFIG ends with its index, which
 * is written over that of the rank before. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

#define ENDPOINT_MAX 80 /* "[address]:port" */

struct endpoints {
    char *list;   /* "PADDLE_TRAINER_ENDPOINTS=a:1,b:2"; NULL: the job's contracts need none */
    char *config; /* TF_CONFIG=... */
    size_t index_at;
};

/* From the hosts of *spawn, which have each rank once. -1 with *e: a host's address or ports are not there,
 * or the kernel has no room for so long a variable. */
int endpoints_init(struct endpoints *n, const Hvd__Spawn *spawn, struct err *e);
void endpoints_free(struct endpoints *n);
/* "TF_CONFIG=..."; valid until the next call. */
char *endpoints_tf_config(struct endpoints *n, uint32_t rank);
/* The entry of `rank` in a list by comma; false: there is none, or it is too long. */
bool endpoints_entry(const char *list, uint32_t rank, char text[ENDPOINT_MAX]);
