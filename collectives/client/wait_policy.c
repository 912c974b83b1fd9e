#include "collectives/client/wait_policy.h"

#define LAPSES_MOST 10 /* then each 1024th operation looks */
#define QUICK_MOST  64 /* so many quick looks in a row take back a lapse */

bool patience_has(const struct patience *p, uint32_t operation)
{
    return !p->hurt || operation % (1u << p->lapses) == 0;
}

void patience_learn(struct patience *p, bool quick)
{
    p->hurt = !quick;
    if (!quick) {
        p->lapses += p->lapses < LAPSES_MOST;
        p->quick = 0;
    } else if (p->lapses > 0 && ++p->quick == QUICK_MOST) {
        p->lapses--;
        p->quick = 0;
    }
}

bool overdue_after(struct overdue *o, uint32_t beat, bool blind, bool failed)
{
    o->slices++;
    o->quiet = beat == o->beat ? o->quiet + 1 : 0;
    o->beat = beat;
    if (o->slices >= OVERDUE_MOST || (failed && o->slices >= OVERDUE_QUIET))
        return true;
    return !blind && o->quiet >= OVERDUE_QUIET;
}
