/* A thread that is never joined and gets no signals: those are for the threads of the program. */
#pragma once

/* 0, or the number of the error. */
int quiet_thread_start(void *(*run)(void *), void *argument);
