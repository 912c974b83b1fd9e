/* A thread that is never joined and gets no signals: those are for the threads of the program. */
#ifndef HVD_COMMON_PROCESS_QUIET_THREAD_H
#define HVD_COMMON_PROCESS_QUIET_THREAD_H

/* 0, or the number of the error. */
int quiet_thread_start(void *(*run)(void *), void *argument);

#endif
