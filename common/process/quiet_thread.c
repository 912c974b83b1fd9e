#include "common/process/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

int quiet_thread_start(void *(*run)(void *), void *argument)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    int error;

    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &detached, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return error;
}
