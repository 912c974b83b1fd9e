/* --output-filename: two files for every rank, named as output_names.h says.
 *
 * A file that cannot be written (a full disk) is said once and does not stop the job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/frame.h"
#include "launcher/plan/plan.h"

struct output_files;

/* Creates directories and empty files, or goes on behind what the files hold; NULL with *e filled when that
 * fails, before anything was started. Everything given must outlive the files. `room`: ranks that there may
 * be. */
struct output_files *output_files_new(const char *name, const struct plan *plan, uint32_t room,
                                      const char *const *host_names, bool append, struct err *e);
/* The plan has a rank more, for which there is room. */
int output_files_add(struct output_files *files, uint32_t rank, struct err *e);
void output_files_write(struct output_files *files, uint32_t rank, enum frame_stream stream,
                        const void *bytes, size_t len);
void output_files_free(struct output_files *files);
