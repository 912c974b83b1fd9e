#include "launcher/host/agent_upload_stream.h"

#include <string.h>

void host_sending_begin(struct host_sending *s, const struct sent_agent *a)
{
    *s = (struct host_sending){.bytes = (const uint8_t *)a->script, .left = a->script_len};
}

void host_sending_written(struct host_sending *s, size_t taken)
{
    s->bytes += taken;
    s->left -= taken;
}

/* A line has ended. Lines that a shell prints at the login are no answers. */
static enum sending_answer read_answer(struct host_sending *s, const struct sent_agent *a)
{
    size_t len = s->filled;
    s->filled = 0;
    if (len == strlen(a->have) && memcmp(s->line, a->have, len) == 0)
        return SENDING_HAVE;
    if (s->files || s->left > 0 || len != strlen(a->want) || memcmp(s->line, a->want, len) != 0)
        return SENDING_NONE;
    s->files = true;
    s->bytes = a->bytes;
    s->left = a->len;
    return SENDING_WANT;
}

enum sending_answer host_sending_receive(struct host_sending *s, const struct sent_agent *a,
                                         const uint8_t *bytes, size_t len, size_t *used)
{
    for (*used = 0; *used < len;) {
        char c = (char)bytes[(*used)++];
        if (c == '\n') {
            enum sending_answer said = read_answer(s, a);
            if (said != SENDING_NONE)
                return said;
        } else if (s->filled < sizeof s->line) {
            s->line[s->filled++] = c;
        }
    }
    return SENDING_NONE;
}
