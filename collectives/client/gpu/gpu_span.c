/* Buffers that lie in several allocations mapped one behind the other, as in segments that grow: the engine
 * has each allocation once, by itself, and maps those under a buffer once more, likewise one behind the
 * other.
 *
 * Such a span is of a buffer's allocations, no more and no fewer: then nothing uses a span any more when one
 * of its allocations goes, and it can go too. Buffers in the same allocations have one span. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/client/gpu/gpu.h"
#include "collectives/shm/numbers.h"

/* How many are before (base, bytes) in their order. */
static size_t place_of(const struct device_context *c, uintptr_t base, uint64_t bytes)
{
    size_t low = 0, high = c->spans;

    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct device_span *s = &c->span[middle];
        if (s->base < base || (s->base == base && s->bytes < bytes))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The engine's number; 0: it cannot have it. */
static uint32_t give(const struct device_context *c, const struct device_export *piece, size_t n)
{
    struct worker_message m = {.type = WORKER_DEVICE_SPAN};
    struct worker_device q = {.gpu = c->engine.gpu};
    uint32_t *number = malloc(n * sizeof *number);
    int fd = -1, status = HVD_ERR_MEMORY;

    for (size_t i = 0; number && i < n; i++)
        number[i] = piece[i].number;
    if (number && (fd = numbers_write(number, n)) >= 0) {
        memcpy(m.text, &q, sizeof q);
        status = rpc(&m, fd, NULL, NULL);
        close(fd);
    }
    free(number);
    return status == HVD_SUCCESS ? m.id : 0;
}

uint32_t device_span(struct device_context *c, const struct device_export *piece, size_t n)
{
    uintptr_t base = piece[0].base;
    uint64_t bytes = piece[n - 1].base + piece[n - 1].bytes - base;
    size_t i = place_of(c, base, bytes), room = c->spans_room ? 2 * c->spans_room : 16;
    struct device_span *more;

    if (i < c->spans && c->span[i].base == base && c->span[i].bytes == bytes)
        return c->span[i].number;
    if (c->spans == c->spans_room) {
        if (!(more = realloc(c->span, room * sizeof *more)))
            return 0;
        c->span = more;
        c->spans_room = room;
    }
    memmove(&c->span[i + 1], &c->span[i], (c->spans - i) * sizeof *c->span);
    c->span[i] = (struct device_span){.base = base, .bytes = bytes, .number = give(c, piece, n)};
    c->spans++;
    return c->span[i].number;
}

void device_spans_forget(struct device_context *c, const struct device_export *piece)
{
    size_t kept = 0;

    for (size_t i = 0; i < c->spans; i++) {
        const struct device_span *s = &c->span[i];
        if (s->base + s->bytes <= piece->base || piece->base + piece->bytes <= s->base)
            c->span[kept++] = *s;
        else if (s->number)
            device_export_close(s->number);
    }
    c->spans = kept;
}
