#include "common/base/secret.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void secret_hide(void *pages, size_t size)
{
    (void)madvise(pages, size, MADV_DONTDUMP);
}

void *secret_new(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    secret_hide(memory, size);
    if (size <= (size_t)sysconf(_SC_PAGESIZE))
        (void)mlock(memory, size);
    return memory;
}

void secret_free(void *memory, size_t size)
{
    if (!memory)
        return;
    explicit_bzero(memory, size);
    (void)munmap(memory, size);
}

/* The registers first, or the next call that is bound lazily leaves them on the stack again: by copies of
 * nothing, with the function and the sizes with which the secrets were copied. */
__attribute__((noinline)) void secret_wipe_stack(void)
{
    static void *(*volatile const copy)(void *, const void *, size_t) = memcpy;
    unsigned char space[32u << 10];
    memset(space, 0, 512);
    for (size_t size = 16; size <= 256; size *= 2)
        copy(space + 256, space, size);
    explicit_bzero(space, sizeof space);
}

void secret_copy(void *to, const void *from, size_t size)
{
    volatile unsigned char *t = to;
    const volatile unsigned char *f = from;
    for (size_t i = 0; i < size; i++)
        t[i] = f[i];
}

bool secret_equal(const void *a, const void *b, size_t size)
{
    const volatile unsigned char *x = a, *y = b;
    unsigned difference = 0;
    for (size_t i = 0; i < size; i++)
        difference |= x[i] ^ y[i];
    return difference == 0;
}
