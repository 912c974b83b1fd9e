/* A file of what this process does with each tensor. */
#ifndef HVD_COLLECTIVES_CLIENT_TIMELINE_H
#define HVD_COLLECTIVES_CLIENT_TIMELINE_H

/* Starts the timeline that HOROVOD_TIMELINE asks for. A status. */
int timeline_open(void);
/* Stops the timeline that runs, if there is one. */
void timeline_close(void);

#endif
