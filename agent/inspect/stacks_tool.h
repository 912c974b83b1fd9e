/* From what eu-stack and gdb print to stacks that can be compared: function names without addresses and
 * arguments, innermost first, one line for each different stack of a process's threads. Pure. */
#ifndef HVD_AGENT_INSPECT_STACKS_TOOL_H
#define HVD_AGENT_INSPECT_STACKS_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Lines as "read < load < main" and "3 threads: futex_wait < worker", that of the main thread (`pid`) first.
 * Long stacks lose their middle; what does not fit into `size` is left out at the end. False when there is no
 * frame in `text`. */
bool stacks_parse(const char *text, pid_t pid, char *out, size_t size);

#endif
