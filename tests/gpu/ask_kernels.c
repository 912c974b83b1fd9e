/* How fast do the kernels of collectives/gpu/pack.h copy and scale, beside the driver's copies of the same
 * pieces one by one, and beside one copy of all bytes, which is as fast as the memory allows? */
#include <stdio.h>
#include <string.h>

#include "collectives/gpu/pack.h"
#include "collectives/hvd.h"
#include "tests/bench/resnet50.h"
#include "tests/gpu/ask.h"

#define ALIGN       512 /* of a tensor, as allocators do */
#define PIECES_MOST RESNET50_TENSORS
#define TURNS       20
#define ROUNDS      5

static struct {
    const struct driver *d;
    struct pack *pack;
    cu_stream stream;
    cu_pointer from, to;
    struct pack_piece piece[PIECES_MOST];
    size_t n, bytes;
} test;

typedef cu_result work(void);

static cu_result copy_whole(void)
{
    return test.d->cuMemcpyDtoDAsync(test.to, test.from, test.bytes, test.stream);
}

static cu_result copy_each(void)
{
    for (size_t i = 0; i < test.n; i++) {
        cu_result result =
            test.d->cuMemcpyDtoDAsync(test.piece[i].to, test.piece[i].from, test.piece[i].count, test.stream);
        if (result != CU_OK)
            return result;
    }
    return CU_OK;
}

static cu_result copy_by_kernel(void)
{
    return pack_copy(test.pack, test.piece, test.n, test.stream, NULL) == 0 ? CU_OK : CU_NOT_READY;
}

static cu_result scale_by_kernel(void)
{
    struct pack_piece piece[PIECES_MOST];

    memcpy(piece, test.piece, sizeof piece);
    for (size_t i = 0; i < test.n; i++)
        piece[i].count /= sizeof(float);
    return pack_scale(test.pack, piece, test.n, HVD_FLOAT32, 0.5, test.stream, NULL) == 0 ? CU_OK
                                                                                          : CU_NOT_READY;
}

/* The shortest of some rounds, in us. */
static double time_of(work *call)
{
    double best = 0;

    for (int round = 0; round < ROUNDS; round++) {
        test.d->cuStreamSynchronize(test.stream);
        double since = now_us();
        for (int turn = 0; turn < TURNS; turn++)
            if (say_refusal("a copy on the GPU", call(), "the driver"))
                return 0;
        test.d->cuStreamSynchronize(test.stream);
        double took = (now_us() - since) / TURNS;
        if (round == 0 || took < best)
            best = took;
    }
    return best;
}

/* Tensors lie apart; the buffer that they are packed into is dense. */
static void place_pieces(const size_t *count, size_t n)
{
    size_t at = 0;

    test.n = n;
    test.bytes = 0;
    for (size_t i = 0; i < n; i++) {
        test.piece[i] = (struct pack_piece){test.to + test.bytes, test.from + at, count[i] * sizeof(float)};
        at += (count[i] * sizeof(float) + ALIGN - 1) / ALIGN * ALIGN;
        test.bytes += count[i] * sizeof(float);
    }
}

static void say_way(const char *what, const char *way, work *call)
{
    char question[96];
    double took = time_of(call);

    snprintf(question, sizeof question, "%s, %s", what, way);
    say(question, "%.1f us, %.0f GB/s", took, took > 0 ? 2e-3 * (double)test.bytes / took : 0);
}

static void ask_of_pieces(const char *what, const size_t *count, size_t n)
{
    place_pieces(count, n);
    say_way(what, "one copy of all bytes", copy_whole);
    say_way(what, "copies by the driver", copy_each);
    if (!pack_has_kernels(test.pack))
        return;
    say_way(what, "kernel that copies", copy_by_kernel);
    say_way(what, "kernel that scales", scale_by_kernel);
}

static void ask_of_all_pieces(void)
{
    size_t count[PIECES_MOST];

    for (int i = 0; i < 64; i++)
        count[i] = 1024;
    ask_of_pieces("64 x 4 KiB", count, 64);
    for (int i = 0; i < 64; i++)
        count[i] = 16 << 10;
    ask_of_pieces("64 x 64 KiB", count, 64);
    for (int i = 0; i < 64; i++)
        count[i] = 256 << 10;
    ask_of_pieces("64 x 1 MiB", count, 64);
    count[0] = count[1] = 16 << 20;
    ask_of_pieces("2 x 64 MiB", count, 2);
    if (resnet50(count) == 0)
        ask_of_pieces("ResNet-50's 161", count, RESNET50_TENSORS);
}

void ask_of_kernels(const struct driver *d)
{
    const size_t room = (size_t)160 << 20;

    test.d = d;
    if (say_refusal("room for copies", d->cuMemAlloc(&test.from, room), "cuMemAlloc"))
        return;
    if (!say_refusal("room for copies", d->cuMemAlloc(&test.to, room), "cuMemAlloc")) {
        test.pack = pack_open(d, NULL);
        if (!say_refusal("a stream", d->cuStreamCreate(&test.stream, CU_STREAM_NON_BLOCKING_FLAG),
                         "cuStreamCreate") &&
            test.pack)
            ask_of_all_pieces();
        pack_close(test.pack);
        d->cuMemFree(test.to);
    }
    d->cuMemFree(test.from);
}
