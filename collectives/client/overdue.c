#include "collectives/client/overdue.h"

bool overdue_after(struct overdue *o, uint32_t beat, bool blind, bool failed)
{
    o->slices++;
    o->quiet = beat == o->beat ? o->quiet + 1 : 0;
    o->beat = beat;
    if (o->slices >= OVERDUE_MOST || (failed && o->slices >= OVERDUE_QUIET))
        return true;
    return !blind && o->quiet >= OVERDUE_QUIET;
}
