/* Exit statuses of `hvdagent session`, which are those of its guard and tell how the session ended. `hvdagent
 * attach` exits with the same. */
#pragma once

#define AGENT_EXIT_SILENT  121 /* it heard nothing of hvdrun for the heartbeat time-out, and ended the job */
#define AGENT_EXIT_REFUSED 123 /* the managed agent of the host did not start one; LeaseRefusal said why */
#define AGENT_EXIT_GUARD   122 /* of attach alone: the guard ended without a word, so it was killed */
#define AGENT_EXIT_STUCK   124 /* it did not move, and the guard killed it */
#define AGENT_EXIT_SIGNAL  128 /* and the number of the signal that killed it */
