/* Memory for secrets (a job's key, its workers' token) and for the bytes that bring them: pages of their own
 * that no core file holds, wiped before they are given back. A process that can be traced can still be read;
 * see SECURITY.md. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Zeroed. NULL when there is no memory. A secret of at most one page is not swapped out either, where the
 * limits of the process allow that. */
void *secret_new(size_t size);
/* Of the same size; NULL is allowed. */
void secret_free(void *memory, size_t size);
/* Keeps whole pages of another owner out of core files. */
void secret_hide(void *pages, size_t size);

/* Wipes the bytes that functions left in registers and on the stack when they returned: libraries copy
 * through wide registers, which the dynamic linker saves on the stack. Called by the caller of a function
 * that has handled a secret. */
void secret_wipe_stack(void);
/* A byte at a time, not through wide registers. */
void secret_copy(void *to, const void *from, size_t size);
/* In a time that does not depend on where they differ. */
bool secret_equal(const void *a, const void *b, size_t size);
