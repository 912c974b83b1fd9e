/* The TCP backend gets anything that another host may send: grants and bulk frames, for operations that are
 * in flight, are still to begin, or do not exist. The fuzzer writes bytes to the address that the backend
 * gave, as a link does, also after the operation has ended.
 *
 * needs: algo engine */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms/endpoint.h"
#include "collectives/backends/tcp.h"
#include "common/base/cursor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS    3
#define ELEMENTS 3000
#define SENDS    4096

static struct link_send *queued[SENDS];
static unsigned sends;

static int take_control(struct links *l, uint32_t host, const void *data, size_t size, struct err *e)
{
    return 0;
}

static int take_bulk(struct links *l, uint32_t host, struct link_send *send, struct err *e)
{
    if (host >= HOSTS || sends == SENDS)
        abort();
    queued[sends++] = send;
    return 0;
}

static void end_sends(int status)
{
    for (unsigned i = 0; i < sends; i++) { /* more may come meanwhile */
        struct link_send *send = queued[i];
        send->done(send, status);
    }
    sends = 0;
}

static void ignore_done(void *ctx, const struct err *error)
{
}

/* A link has one frame at a time; the second half of its bytes comes with the next step. */
struct stream {
    struct link_bulk head;
    uint8_t *place;
};

static int finish(struct backend *b, uint32_t host, struct stream *s)
{
    uint8_t *place = s->place;
    if (!place)
        return 0;
    s->place = NULL;
    memset(place + s->head.length / 2, 7, s->head.length - s->head.length / 2);
    return backend_tcp_bulk_arrived(b, host, &s->head, NULL);
}

static int begin(struct backend *b, uint32_t host, struct stream *s, const uint8_t *p)
{
    static const uint32_t lengths[] = {0, 4, 16, 400, 4000, 12000, 32768, 65536};
    s->head = (struct link_bulk){.sequence = (p[0] & 7) | (uint64_t)(p[0] >> 7) << 40,
                                 .channel = p[1] % 6,
                                 .length = lengths[p[2] & 7],
                                 .offset = p[3] * 4u};
    if (s->head.length == 0)
        return backend_tcp_bulk_arrived(b, host, &s->head, NULL);
    s->place = backend_tcp_bulk_place(b, host, &s->head);
    if (s->place)
        memset(s->place, 7, s->head.length / 2);
    return s->place ? 0 : -1;
}

static int grant(struct backend *b, uint32_t host, const uint8_t *p)
{
    uint8_t message[24] = {BACKEND_CONTROL_TYPE};
    struct writer w = writer_of(message + 8, 16);
    write_u64(&w, (p[0] & 7) | (uint64_t)(p[0] >> 7) << 40);
    write_u64(&w, p[1] * 256ull);
    return backend_tcp_control(b, host, message, sizeof message - (p[2] == 255), NULL);
}

static int start(struct backend *b, uint32_t self, uint64_t sequence, float *elements, const uint8_t *p)
{
    static const uint64_t counts[] = {0, 1, 4, 100, 1000, ELEMENTS / HOSTS};
    const uint32_t two[] = {self == 0 ? 0 : self - 1, self == 0 ? 1 : self};
    const uint64_t part[] = {counts[p[1] % 6], counts[p[2] % 6], counts[p[3] % 6]};
    uint64_t part_in[] = {counts[p[2] / 6 % 6], counts[p[3] / 6 % 6], counts[p[1] / 6 % 6]};
    bool some = p[0] & 64;
    part_in[some ? self != 0 : self] = part[some ? self != 0 : self];
    struct backend_request r = {.kind = BACKEND_ALLREDUCE + p[0] % 6,
                                .set = p[0] >> 7,
                                .sequence = sequence,
                                .host = some ? two : NULL,
                                .hosts = 2,
                                .data = elements,
                                .out = elements + ELEMENTS,
                                .count = counts[p[1] % 6] * HOSTS,
                                .part = part,
                                .part_in = part_in,
                                .dtype = HVD_FLOAT32,
                                .op = HVD_SUM,
                                .divisor = HOSTS,
                                .root = some ? two[p[2] % 2] : p[2] % HOSTS,
                                .done = ignore_done};
    return b->ops->start(b, &r, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wire_ops wire = {.send_control = take_control, .send_bulk = take_bulk};
    struct stream stream[HOSTS] = {{.place = NULL}};
    float *elements[8];
    if (size < 1)
        return 0;
    struct backend_tcp_config c = {
        .wire = &wire, .self = data[0] % HOSTS, .hosts = HOSTS, .eager_bytes = data[0] & 128 ? 400 : 0};
    struct backend *b = backend_tcp_new(&c, NULL);
    uint64_t sequence = 0;
    int rc = 0;
    for (int i = 0; i < 8; i++)
        elements[i] = calloc(2 * ELEMENTS, sizeof **elements);
    /* A refused frame ends its link, and with it the job; some writing goes on until then. */
    for (data++, size--; size >= 5 && rc == 0; data += 5, size -= 5) {
        uint32_t host = (c.self + 1 + (data[0] >> 7)) % HOSTS;
        if ((data[0] & 3) == 0 && sequence < 7) {
            sequence++;
            rc = start(b, c.self, sequence, elements[sequence], data + 1);
        } else if ((data[0] & 3) == 1) {
            rc = grant(b, host, data + 1);
        } else if ((data[0] & 3) == 2) {
            rc = finish(b, host, &stream[host]) < 0 ? -1 : begin(b, host, &stream[host], data + 1);
        } else {
            end_sends(0);
        }
    }
    for (uint32_t i = 0; i < HOSTS; i++)
        (void)finish(b, i, &stream[i]);
    end_sends(-1);
    b->ops->free(b);
    for (int i = 0; i < 8; i++)
        free(elements[i]);
    return 0;
}
