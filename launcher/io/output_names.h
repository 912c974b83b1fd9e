/* The names of --output-filename's files (pure).
 *
 * Without a % the name is a directory, which gets horovodrun's layout: NAME/rank.N/stdout and stderr. With
 * one it is a pattern: %r the rank, %h its host's name, %n its host's number, %j the batch system's number of
 * the job or hvdrun's process, %s stdout or stderr, %% a %. Without %s the files end in .out and .err. Ranks
 * have zeros before them, so that the names sort. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/frame.h"

struct output_owner { /* of a file */
    uint32_t rank, size;
    uint32_t host_index;
    const char *host, *job;
    enum frame_stream stream;
};

/* ERR_USAGE: an unknown letter, or a pattern by which several ranks would share a file. */
int output_names_check(const char *name, struct err *e);
/* Of a name that was checked. ERR_USAGE: too long. */
int output_name(const char *name, const struct output_owner *owner, char *out, size_t size, struct err *e);
