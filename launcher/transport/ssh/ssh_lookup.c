/* Not uv_getaddrinfo: a request of that keeps the loop alive and its threads are joined when the program
 * exits, and a name server that does not answer takes 10 s to give up. A launcher that has given a host up
 * must be able to leave at once. So: one detached thread for each name (numeric addresses need none), the
 * answer handed over through an eventfd, the memory owned by both until the second lets go. */
#include "launcher/transport/ssh/ssh_lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define STACK_BYTES (512 * 1024) /* name service modules are not small */

void ssh_lookup_release(struct ssh_lookup *l)
{
    if (atomic_fetch_sub(&l->owners, 1) > 1)
        return;
    if (l->list)
        freeaddrinfo(l->list);
    close(l->event_fd);
    free(l);
}

static void *resolve_name(void *arg)
{
    struct ssh_lookup *l = arg;
    struct addrinfo hints = {.ai_family = l->family, .ai_socktype = SOCK_STREAM};
    l->status = getaddrinfo(l->host, NULL, &hints, &l->list);
    atomic_store(&l->answered, true);
    eventfd_write(l->event_fd, 1);
    ssh_lookup_release(l);
    return NULL;
}

static int start_thread(struct ssh_lookup *l)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the main thread's */
    int rc = pthread_create(&thread, &attributes, resolve_name, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc;
}

struct ssh_lookup *ssh_lookup_start(const char *host, int family, struct err *e)
{
    size_t len = strlen(host) + 1;
    struct ssh_lookup *l = calloc(1, sizeof *l + len);
    if (!l) {
        err_set(e, ERR_MEMORY, "no memory to resolve %s", host);
        return NULL;
    }
    memcpy(l->host, host, len);
    l->family = family;
    atomic_init(&l->owners, 2);
    l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = l->event_fd < 0 ? errno : start_thread(l);
    if (rc == 0)
        return l;
    err_sys(e, rc, "cannot resolve %s", host);
    if (l->event_fd >= 0)
        close(l->event_fd);
    free(l);
    return NULL;
}
