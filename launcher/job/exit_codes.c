#include "launcher/job/exit_codes.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/ranks.h"
#include "launcher/job/core.h"

/* All LOST ranks are alike, and so are all that were NOT_STARTED. */
enum kind { ENDED, LOST, NOT_STARTED };

static enum kind kind_of(const struct rank_state *r)
{
    return r->ended ? ENDED : r->started ? LOST : NOT_STARTED;
}

static bool are_alike(const struct rank_state *a, const struct rank_state *b)
{
    const struct rank_end *x = &a->end, *y = &b->end;
    if (kind_of(a) != kind_of(b))
        return false;
    return !a->ended ||
           (x->status == y->status && x->signal == y->signal && x->core_dumped == y->core_dumped &&
            x->by_us == y->by_us && x->not_shut_down == y->not_shut_down && x->oom == y->oom &&
            x->aborted == y->aborted && x->abort_code == y->abort_code);
}

static void describe_end(const struct rank_state *r, char *text, size_t size)
{
    char how[160];
    if (!r->ended) {
        snprintf(text, size, "%s", r->started ? "its host was lost" : "not started");
        return;
    }
    rank_end_describe(&r->end, how, sizeof how);
    snprintf(text, size, "%s%s", how, r->end.by_us ? ", by hvdrun" : "");
}

void exit_codes_say(const struct job *j)
{
    uint32_t size = j->planned ? j->plan.size : 0, count;
    uint32_t *list = calloc(size ? size : 1, sizeof *list);
    bool *said = calloc(size ? size : 1, sizeof *said);
    for (uint32_t i = 0; list && said && i < size; i++) {
        char text[200], ranks[1600];
        count = 0;
        for (uint32_t k = i; k < size && !said[i]; k++)
            if (!said[k] && are_alike(&j->rank[i], &j->rank[k]))
                list[count++] = k;
        for (uint32_t k = 0; k < count; k++)
            said[list[k]] = true;
        if (count == 0)
            continue;
        describe_end(&j->rank[i], text, sizeof text);
        log_say("hvdrun: rank%s %s: %s\n", count == 1 ? "" : "s",
                ranks_text_short(list, count, ranks, sizeof ranks), text);
    }
    free(list);
    free(said);
}
