#include "common/process/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

int quiet_thread_start(void *(*run)(void *), void *argument)
{
    sigset_t all;
    sigfillset(&all);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int error = pthread_create(&thread, &detached, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return error;
}
