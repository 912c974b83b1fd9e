/* The beginning of a line of output: time, ranks and colour, by --tag, --color, --collapse and
 * --prefix-output-with-timestamp. */
#ifndef HVD_LAUNCHER_IO_LINE_TAG_H
#define HVD_LAUNCHER_IO_LINE_TAG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/frame.h"
#include "launcher/cli/config.h"

#define LINE_TAG_MAX 512

/* Are tags that go to this descriptor to have colours? */
bool line_tag_wants_color(const struct config *config, int fd);
/* The beginning of a line that `count` ranks, ascending, have printed; `host` is the first one's. Returns its
 * length. */
size_t line_tag(const struct config *config, bool colored, enum frame_stream stream, const uint32_t *rank,
                uint32_t count, const char *host, char out[LINE_TAG_MAX]);

#endif
