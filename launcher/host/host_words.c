#include "launcher/host/host_words.h"

#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define MINUTE (60 * NSEC_PER_SEC)

void host_words_end(struct host_words *w, const char *label)
{
    if (w->dropped > 0)
        log_warning("%s: %" PRIu64 " lines of what it says were left out", label, w->dropped);
    w->dropped = 0;
}

static void make_room(struct host_words *w, uint64_t now)
{
    uint64_t minutes = w->since ? (now - w->since) / MINUTE : 0;
    uint64_t room = w->since ? w->room + minutes * HOST_WORDS_AGAIN : HOST_WORDS;
    w->room = room < HOST_WORDS ? (uint32_t)room : HOST_WORDS;
    w->since = w->since ? w->since + minutes * MINUTE : now;
}

bool host_words_take(struct host_words *w, const char *label, uint64_t now)
{
    make_room(w, now);
    if (w->room == 0) {
        w->dropped++;
        return false;
    }
    w->room--;
    host_words_end(w, label);
    return true;
}
