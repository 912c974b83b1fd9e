/* libuv aborts the process where it has no way to say that something failed: when its table of watched
 * descriptors cannot grow, and when it cannot make the pipes that it needs once. A program that supervises
 * others must not end like this, so
 *
 *   - libuv's memory comes from functions that fall back to a reserve. libuv asks for little: the table and a
 *     few requests. The reserve is not touched, and so takes no memory, until malloc has failed; what was
 *     taken of it is never given back. When it is used up as well, libuv aborts;
 *   - before the loop is made we look whether there are as many descriptors as it takes. */
#include "common/process/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RESERVE     (1u << 20) /* the table for 100,000 descriptors */
#define ALIGNMENT   16
#define DESCRIPTORS 8 /* two pipes, epoll, eventfd, and what one use of them takes */

static _Alignas(ALIGNMENT) uint8_t reserve[RESERVE];
static atomic_size_t taken;

/* Its size stands before each piece. */
static void *take_block(size_t size)
{
    size_t whole = ALIGNMENT + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size > RESERVE || atomic_load(&taken) > RESERVE)
        return NULL;
    size_t at = atomic_fetch_add(&taken, whole);
    if (at + whole > RESERVE)
        return NULL;
    memcpy(reserve + at, &size, sizeof size);
    return reserve + at + ALIGNMENT;
}

static bool is_reserved(const void *pointer)
{
    return (const uint8_t *)pointer >= reserve && (const uint8_t *)pointer < reserve + RESERVE;
}

static void *sure_malloc(size_t size)
{
    void *pointer = malloc(size);
    if (pointer)
        return pointer;
    return take_block(size);
}

static void *sure_calloc(size_t count, size_t size)
{
    void *pointer = calloc(count, size);
    if (pointer)
        return pointer;
    return __builtin_mul_overflow(count, size, &size) ? NULL : take_block(size); /* zeros so far */
}

static void sure_free(void *pointer)
{
    if (!is_reserved(pointer))
        free(pointer);
}

static void *sure_realloc(void *old, size_t size)
{
    void *pointer = is_reserved(old) ? NULL : realloc(old, size);
    size_t before = 0;
    if (pointer || size == 0)
        return pointer;
    if (is_reserved(old))
        memcpy(&before, (uint8_t *)old - ALIGNMENT, sizeof before);
    else if (old)
        before = malloc_usable_size(old);
    pointer = take_block(size);
    if (!pointer)
        return NULL;
    if (old)
        memcpy(pointer, old, before < size ? before : size);
    sure_free(old);
    return pointer;
}

static int look_for_descriptors(struct err *e)
{
    int fd[DESCRIPTORS], count = 0, saved = 0;
    while (count < DESCRIPTORS && (fd[count] = open("/", O_PATH | O_CLOEXEC)) >= 0)
        count++;
    if (count < DESCRIPTORS)
        saved = errno;
    while (count > 0)
        close(fd[--count]);
    return saved ? err_sys(e, saved, "cannot make an event loop: it needs %d descriptors", DESCRIPTORS) : 0;
}

int loop_init(uv_loop_t *loop, struct err *e)
{
    if (look_for_descriptors(e) < 0)
        return -1;
    (void)uv_replace_allocator(sure_malloc, sure_realloc, sure_calloc, sure_free);
    int rc = uv_loop_init(loop);
    return rc < 0 ? err_set(e, ERR_SYSTEM, "cannot make an event loop: %s", uv_strerror(rc)) : 0;
}
