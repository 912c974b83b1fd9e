/* A thread that nobody waits for and that gets no signals: those are for the program's own. */
#ifndef HVD_COMMON_PROCESS_QUIET_THREAD_H
#define HVD_COMMON_PROCESS_QUIET_THREAD_H

/* 0, or the number of the error. */
int quiet_thread_start(void *(*run)(void *), void *argument);

#endif
