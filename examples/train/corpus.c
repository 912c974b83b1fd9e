#include "corpus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CORPUS_MAX (INT64_C(1) << 30)

static int read_all(int fd, uint8_t *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = read(fd, bytes + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EIO : errno; /* it shrank while we read */
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

static int read_file(struct corpus *c, int fd, const char *path, size_t context, struct fault *f)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return fault_set(f, "%.200s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fault_set(f, "%.200s is not a regular file", path);
    if (st.st_size <= (off_t)context)
        return fault_set(f, "%.200s has %lld bytes; a context of %zu needs more", path, (long long)st.st_size,
                         context);
    if (st.st_size > CORPUS_MAX)
        return fault_set(f, "%.200s has %lld bytes; at most %lld are read", path, (long long)st.st_size,
                         (long long)CORPUS_MAX);
    c->len = (size_t)st.st_size;
    c->symbol = malloc(c->len);
    if (c->symbol == NULL)
        return fault_set(f, "no memory for %.200s", path);
    if (read_all(fd, c->symbol, c->len) != 0)
        return fault_set(f, "%.200s: %s", path, strerror(errno));
    return 0;
}

/* Replaces every byte by its rank among the bytes that occur. */
static void index_bytes(struct corpus *c)
{
    int index[256] = {0};

    for (size_t i = 0; i < c->len; i++)
        index[c->symbol[i]] = 1;
    c->alphabet = 0;
    for (int b = 0; b < 256; b++)
        if (index[b])
            index[b] = c->alphabet++;
    for (size_t i = 0; i < c->len; i++)
        c->symbol[i] = (uint8_t)index[c->symbol[i]];
}

int corpus_read(struct corpus *c, const char *path, size_t context, struct fault *f)
{
    /* O_NONBLOCK: a FIFO given by mistake is refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int status;

    memset(c, 0, sizeof *c);
    if (fd < 0)
        return fault_set(f, "%.200s: %s", path, strerror(errno));
    status = read_file(c, fd, path, context, f);
    close(fd);
    if (status != 0) {
        corpus_free(c);
        return -1;
    }
    c->digest = digest_add(DIGEST_START, c->symbol, c->len);
    index_bytes(c);
    return 0;
}

void corpus_free(struct corpus *c)
{
    free(c->symbol);
    memset(c, 0, sizeof *c);
}

size_t corpus_sample(const struct corpus *c, size_t context, uint64_t seed, uint64_t step, uint64_t index)
{
    return context + (size_t)(mix(seed, step, index) % (c->len - context));
}

static uint64_t scramble(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t odd = UINT64_C(0x9e3779b97f4a7c15);

    return scramble(scramble(scramble(a + odd) + b + odd) + c + odd);
}

uint64_t digest_add(uint64_t digest, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < len; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

void corpus_batch(const struct corpus *c, size_t context, uint64_t seed, uint64_t step, size_t first,
                  size_t last, uint8_t *question, uint8_t *answer)
{
    for (size_t i = first; i < last; i++, question += context) {
        size_t at = corpus_sample(c, context, seed, step, i);

        memcpy(question, c->symbol + at - context, context);
        *answer++ = c->symbol[at];
    }
}
