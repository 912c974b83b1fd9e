#include "collectives/shm/patience.h"

#define SLICE_NS    1000000   /* a yield that takes longer has given away a slice */
#define SPAN_LEAST  2000000   /* about such a slice */
#define SPAN_MOST   250000000 /* then one slice in so long is lost */
#define QUICK_MOST  1024      /* so many quick yields in a row halve the span */
#define HANDED_MOST 16        /* more in a row than chance brings */
#define PAUSE_LEAST 200000
#define PAUSE_MOST  20000000 /* beside a busy process the kernel brings ranks together every few slices */

static uint64_t lengthen_span(uint64_t ns, uint64_t least, uint64_t most)
{
    ns = ns * 2 < least ? least : ns * 2;
    return ns < most ? ns : most;
}

void patience_learn(struct patience *p, uint64_t now, uint64_t ns)
{
    if (ns >= SLICE_NS) {
        p->span = lengthen_span(p->span, SPAN_LEAST, SPAN_MOST);
        p->until = now + p->span;
        p->quick = 0;
    } else if (p->span > 0 && ++p->quick == QUICK_MOST) {
        p->span /= 2;
        p->quick = 0;
    }
}

void patience_handed(struct patience *p, uint64_t now, bool first)
{
    p->handed = first ? p->handed + 1 : 0;
    if (p->handed < HANDED_MOST || now < p->apart)
        return;
    p->pause = lengthen_span(p->pause, PAUSE_LEAST, PAUSE_MOST);
    p->apart = now + p->pause;
    p->handed = 0;
    p->cures++;
    p->advised = true;
}

enum patience_advice patience_advice(struct patience *p)
{
    bool advised = p->advised;
    p->advised = false;
    return !advised ? PATIENCE_YIELD : p->cures % 2 ? PATIENCE_SLEEP : PATIENCE_MOVE;
}
