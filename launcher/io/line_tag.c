#include "launcher/io/line_tag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/ranks.h"

#define COLORS 12u /* red to cyan, then the bright ones */

bool line_tag_wants_color(const struct config *config, int fd)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (config->tag == CONFIG_TAG_NONE || config->color == CONFIG_COLOR_NEVER)
        return false;
    return config->color == CONFIG_COLOR_ALWAYS ||
           (isatty(fd) && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0));
}

/* The ranks' part. */
static int format_ranks(const struct config *config, bool colored, enum frame_stream stream,
                        const uint32_t *rank, uint32_t count, const char *host, char *out, size_t size)
{
    char color[16] = "", plain[8] = "", who[300];
    const char *name = stream == STREAM_STDERR ? "stderr" : "stdout";
    uint32_t i = rank[0] % COLORS;
    if (colored && count == 1) {
        snprintf(color, sizeof color, "\033[%um", i < COLORS / 2 ? 31 + i : 91 + i - COLORS / 2);
        snprintf(plain, sizeof plain, "\033[0m");
    }
    ranks_text_short(rank, count, who, sizeof who);
    if (config->tag == CONFIG_TAG_NONE)
        return snprintf(out, size, "%s[%s]%s ", color, who, plain);
    if (config->tag == CONFIG_TAG_RANK || count > 1)
        return snprintf(out, size, "%s[%s]<%s>:%s", color, who, name, plain);
    return snprintf(out, size, "%s[%s@%s]<%s>:%s", color, who, host, name, plain);
}

size_t line_tag(const struct config *config, bool colored, enum frame_stream stream, const uint32_t *rank,
                uint32_t count, const char *host, char out[LINE_TAG_MAX])
{
    size_t len = 0, size = LINE_TAG_MAX;
    int n = 0;
    if (config->prefix_timestamp) {
        time_t now = time(NULL);
        struct tm tm;
        localtime_r(&now, &tm);
        len = strftime(out, size, "%a %b %e %H:%M:%S %Y", &tm);
    }
    if (config->tag != CONFIG_TAG_NONE || config->collapse)
        n = format_ranks(config, colored, stream, rank, count, host, out + len, size - len);
    else if (len > 0)
        n = snprintf(out + len, size - len, ": ");
    return len + (n > 0 && (size_t)n < size - len ? (size_t)n : 0);
}
