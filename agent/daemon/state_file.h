/* Short texts that a managed agent keeps beside its leases, so that a restart does not forget them. */
#ifndef HVD_AGENT_DAEMON_STATE_FILE_H
#define HVD_AGENT_DAEMON_STATE_FILE_H

#include <stddef.h>

#include "common/base/err.h"

/* Empty when there is no such file; no more than fits. */
void kept_file_read(const char *directory, const char *name, char *text, size_t size);
/* Put there whole by rename. -1 with *e: it is as before. */
int kept_file_write(const char *directory, const char *name, const char *text, struct err *e);
int kept_file_remove(const char *directory, const char *name, struct err *e);

#endif
