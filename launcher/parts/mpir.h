/* MPIR, the interface by which a debugger learns where a job's processes are (MPIR Process Acquisition
 * Interface 1.1): the symbols that it looks for in hvdrun. One job at a time has the table. */
#ifndef HVD_LAUNCHER_PARTS_MPIR_H
#define HVD_LAUNCHER_PARTS_MPIR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

typedef struct {
    char *host_name;
    char *executable_name;
    int pid;
} MPIR_PROCDESC;

/* The table for `size` ranks; empty until it is shown. */
int mpir_begin(uint32_t size, struct err *e);
/* `host` and `executable` must stay until mpir_end. */
void mpir_set(uint32_t rank, const char *host, const char *executable, uint32_t pid);
/* All ranks run: the table can be read, and a debugger that waits for it is told. */
void mpir_show(void);
/* The job has failed: a debugger is told why; `why` must stay until mpir_end. */
void mpir_abort(const char *why);
void mpir_end(void);
/* A debugger has started hvdrun, or is attached to it. */
bool mpir_is_wanted(void);

#endif
