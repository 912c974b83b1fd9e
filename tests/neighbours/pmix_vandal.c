/* pmix_vandal SEED: rank 1 is a client of PMIx which, once connected, spoils one of its messages in a
 * way that the seed chooses; the other ranks go on with what has nothing to do with it, and print "RANK
 * good".
 *
 * The library writes its messages with writev, which is ours here. A message: 16 bytes (who, tag, length in
 * network order, padding), then as many as the length says. */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define HEAD        16
#define MESSAGE_MAX 65536

static unsigned long long state;
static int kind, left = -1;
static pmix_proc_t me;

static unsigned draw(unsigned below)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % below;
}

static void fill(unsigned char *at, size_t len)
{
    while (len-- > 0)
        *at++ = (unsigned char)draw(256);
}

/* Returns how many bytes the message has now. */
static size_t spoil(unsigned char *m, size_t len)
{
    static const unsigned char huge[][8] = {{255, 255, 255, 255, 255, 255, 255, 255},
                                            {127, 255, 255, 255, 255, 255, 255, 255},
                                            {0, 0, 0, 0, 128, 0, 0, 0}};
    size_t body = len > HEAD ? len - HEAD : 1;
    switch (kind) {
    case 0: /* noise */
        len = 1 + draw(MESSAGE_MAX);
        fill(m, len);
        break;
    case 1: /* the beginning; the next message is taken for the rest */
        len = 1 + draw((unsigned)len);
        break;
    case 2: /* 4 GiB and more are announced */
        memset(m + 8, 255, 4 + 4 * draw(2));
        break;
    case 3: /* the tag of something else */
        memset(m + 4, 0, 4);
        m[7] = (unsigned char)(3 + draw(90));
        break;
    case 4: /* in somebody else's name */
        m[3] ^= (unsigned char)(1 + draw(7));
        break;
    case 5: /* some bytes */
        for (unsigned n = 1 + draw(8); n > 0; n--)
            m[HEAD + draw((unsigned)body)] = (unsigned char)draw(256);
        break;
    case 6: /* a number */
        memcpy(m + HEAD + draw((unsigned)body), huge[draw(3)], 4 + 4 * draw(2));
        break;
    default: /* a body of noise with an honest header, some other command first */
        m[HEAD] = (unsigned char)draw(40);
        fill(m + HEAD + 1, body - 1);
    }
    return len;
}

ssize_t writev(int fd, const struct iovec *iov, int n)
{
    static unsigned char m[MESSAGE_MAX + 64];
    size_t len = 0;
    if (left < 0 || left-- > 0)
        return syscall(SYS_writev, fd, iov, n);
    for (int i = 0; i < n && len + iov[i].iov_len <= MESSAGE_MAX; len += iov[i++].iov_len)
        memcpy(m + len, iov[i].iov_base, iov[i].iov_len);
    size_t now = spoil(m, len);
    for (size_t sent = 0; sent < now;) {
        ssize_t k = send(fd, m + sent, now - sent, MSG_NOSIGNAL);
        if (k <= 0)
            break;
        sent += (size_t)k;
    }
    return (ssize_t)len;
}

static void nap(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

static int put(const char *key)
{
    pmix_value_t v;
    PMIX_VALUE_LOAD(&v, "something", PMIX_STRING);
    int bad = PMIx_Put(PMIX_GLOBAL, key, &v) != PMIX_SUCCESS || PMIx_Commit() != PMIX_SUCCESS;
    PMIX_VALUE_DESTRUCT(&v);
    return bad;
}

static int publish(const char *key)
{
    pmix_info_t info;
    pmix_pdata_t found;
    PMIX_INFO_LOAD(&info, key, "else", PMIX_STRING);
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, key);
    int bad = PMIx_Publish(&info, 1) != PMIX_SUCCESS || PMIx_Lookup(&found, 1, NULL, 0) != PMIX_SUCCESS;
    PMIX_INFO_DESTRUCT(&info);
    PMIX_PDATA_DESTRUCT(&found);
    return bad;
}

static int fence(pmix_rank_t other)
{
    pmix_proc_t both[2];
    PMIX_LOAD_PROCID(&both[0], me.nspace, me.rank < other ? me.rank : other);
    PMIX_LOAD_PROCID(&both[1], me.nspace, me.rank < other ? other : me.rank);
    return PMIx_Fence(both, me.rank == other ? 1 : 2, NULL, 0) != PMIX_SUCCESS;
}

/* It may be cut off at any time, and then waits for what never comes. */
static void *misbehave(void *unused)
{
    char key[32];
    (void)unused;
    left = (int)draw(6);
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "of-the-vandal-%d", i);
        (void)put(key);
        (void)fence(1);
        (void)publish(key);
    }
    return NULL;
}

static int behave(void)
{
    char key[32];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "of-%u-%d", me.rank, i);
        if (put(key) || publish(key) || fence(me.rank == 0 ? 2 : 0))
            return 1;
        nap(10);
    }
    return 0;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    kind = (int)(state % 8);
    state = state * 2654435761u + 1;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS)
        return 1;
    if (me.rank == 1) {
        pthread_create(&thread, NULL, misbehave, NULL);
        nap(150);
        _exit(0);
    }
    int bad = behave();
    printf("%u %s\n", me.rank, bad ? "bad" : "good");
    fflush(stdout);
    _exit(bad);
}
