/* --output-filename: two files for every rank, named as output_names.h says.
 *
 * A file that cannot be written (a full disk) is said once and does not stop the job. */
#ifndef HVD_LAUNCHER_IO_OUTPUT_FILES_H
#define HVD_LAUNCHER_IO_OUTPUT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/frame.h"
#include "launcher/plan/plan.h"

struct output_files;

/* Creates directories and empty files, or goes on behind what the files hold; NULL with *e filled when that
 * fails, before anything was started. */
struct output_files *output_files_new(const char *name, const struct plan *plan,
                                      const char *const *host_names, bool append, struct err *e);
void output_files_write(struct output_files *files, uint32_t rank, enum frame_stream stream,
                        const void *bytes, size_t len);
void output_files_free(struct output_files *files);

#endif
