/* The names and types are the interface's. A debugger reads and writes the variables from outside at any
 * time, so they are volatile, and no access may be optimised away. */
#include "launcher/parts/mpir.h"

#include <stdlib.h>

#define MPIR_DEBUG_SPAWNED  1
#define MPIR_DEBUG_ABORTING 2

extern MPIR_PROCDESC *MPIR_proctable;
extern int MPIR_proctable_size;
extern volatile int MPIR_being_debugged, MPIR_debug_state;
extern char *volatile MPIR_debug_abort_string;
extern int MPIR_i_am_starter, MPIR_partial_attach_ok, MPIR_ignore_queues, MPIR_force_to_main;
extern void MPIR_Breakpoint(void);

MPIR_PROCDESC *MPIR_proctable;
int MPIR_proctable_size;
volatile int MPIR_being_debugged, MPIR_debug_state;
char *volatile MPIR_debug_abort_string;
/* That they are there says: hvdrun is no rank itself; ranks that the debugger leaves alone are set going by
 * us; it need not look for message queues. */
int MPIR_i_am_starter, MPIR_partial_attach_ok, MPIR_ignore_queues;
/* Ranks are held at their first instruction, before main. */
int MPIR_force_to_main;

static MPIR_PROCDESC *table;
static uint32_t table_size;

void __attribute__((noinline, used)) MPIR_Breakpoint(void)
{
    __asm__ volatile("" ::: "memory");
}

int mpir_begin(uint32_t size, struct err *e)
{
    mpir_end();
    table = calloc(size, sizeof *table);
    table_size = size;
    return table ? 0 : err_set(e, ERR_MEMORY, "no memory for %u ranks", size);
}

void mpir_set(uint32_t rank, const char *host, const char *executable, uint32_t pid)
{
    if (rank < table_size)
        table[rank] = (MPIR_PROCDESC){(char *)(uintptr_t)host, (char *)(uintptr_t)executable, (int)pid};
}

static void tell_debugger(int state)
{
    MPIR_debug_state = state;
    MPIR_Breakpoint();
}

void mpir_show(void)
{
    MPIR_proctable = table;
    MPIR_proctable_size = (int)table_size;
    tell_debugger(MPIR_DEBUG_SPAWNED);
}

void mpir_abort(const char *why)
{
    if (!MPIR_proctable)
        return;
    MPIR_debug_abort_string = (char *)(uintptr_t)why;
    tell_debugger(MPIR_DEBUG_ABORTING);
}

void mpir_end(void)
{
    MPIR_proctable = NULL;
    MPIR_proctable_size = 0;
    MPIR_debug_state = 0;
    MPIR_debug_abort_string = NULL;
    free(table);
    table = NULL;
    table_size = 0;
}

bool mpir_is_wanted(void)
{
    return MPIR_being_debugged;
}
