#include "tests/unit/hostile.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX   5
#define UNKNOWN_TAG 19999

enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2 };

/* How the fields of a message are chosen. ONES: each is there once, and every number is 1, which is a rank
 * and a host that there is. */
enum mood { EMPTY, HIGHEST, ONES, MIXED };

void hostile_seed(struct hostile *h, uint64_t seed, uint64_t salt)
{
    h->state = seed * 0x9e3779b97f4a7c15ull ^ (salt + 1) * 0xbf58476d1ce4e5b9ull;
}

uint64_t hostile_random(struct hostile *h)
{
    uint64_t z = h->state += 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static uint64_t below(struct hostile *h, uint64_t limit)
{
    return hostile_random(h) % limit;
}

/* ---- values -------------------------------------------------------------------------------------------- */

/* Small ones name ranks, hosts and states that there are. */
static uint64_t number(struct hostile *h, enum mood mood)
{
    static const uint64_t extreme[] = {9999,       65535,      65536,          INT32_MAX,  2147483648u,
                                       4000000000, UINT32_MAX, INT64_MAX,      UINT64_MAX, (uint64_t)-9,
                                       1u << 20,   INT64_MIN,  (uint64_t)-9999};
    if (mood == HIGHEST || mood == ONES)
        return mood == ONES ? 1 : UINT64_MAX;
    return below(h, 2) ? below(h, 4) : extreme[below(h, sizeof extreme / sizeof *extreme)];
}

static void put_varint(struct buf *out, uint64_t n)
{
    uint8_t byte;
    for (; n > 127; n >>= 7) {
        byte = (uint8_t)(n | 128);
        (void)buf_put(out, &byte, 1);
    }
    byte = (uint8_t)n;
    (void)buf_put(out, &byte, 1);
}

static void put_tag(struct buf *out, uint32_t id, enum wire wire)
{
    put_varint(out, (uint64_t)id << 3 | wire);
}

static void put_length(struct buf *out, const void *bytes, size_t len)
{
    put_varint(out, len);
    (void)buf_put(out, bytes, len);
}

static void put_text(struct hostile *h, enum mood mood, struct buf *out)
{
    static const char *const texts[] = {"",
                                        "a",
                                        "node1",
                                        "%s%n%p",
                                        "../../../../tmp/x",
                                        "127.0.0.1",
                                        "::1",
                                        "/proc/self/fd",
                                        "-rf",
                                        "\033]0;x\a\r\nhvdrun: x",
                                        "10.0.0.99",
                                        "\xff\xfe\x80",
                                        "HVD_RANK=9999",
                                        "true",
                                        "/nowhere\n/at all"};
    char long_one[5000];
    if (mood == HIGHEST || (mood == MIXED && below(h, 16) == 0)) {
        memset(long_one, 'A', sizeof long_one);
        put_length(out, long_one, sizeof long_one);
        return;
    }
    const char *text = texts[below(h, sizeof texts / sizeof *texts)];
    put_length(out, text, strlen(text) + (below(h, 32) == 0)); /* the last byte 0, among the others */
}

static void put_bytes(struct hostile *h, enum mood mood, struct buf *out)
{
    static const size_t sizes[] = {0, 1, 15, 16, 31, 32, 33, 64, 4096};
    uint8_t bytes[4096];
    memset(bytes, (int)below(h, 256), sizeof bytes);
    put_length(out, bytes, mood == HIGHEST ? sizeof bytes : sizes[below(h, sizeof sizes / sizeof *sizes)]);
}

/* ---- fields -------------------------------------------------------------------------------------------- */

static void put_fields(struct hostile *h, const ProtobufCMessageDescriptor *type, enum mood mood,
                       unsigned depth, struct buf *out);

static void put_part(struct hostile *h, const ProtobufCMessageDescriptor *type, enum mood mood,
                     unsigned depth, struct buf *out)
{
    struct buf part;
    buf_init(&part, 12u << 20);
    put_fields(h, type, mood, depth + 1, &part);
    put_length(out, buf_data(&part), part.len);
    buf_free(&part);
}

static void put_field(struct hostile *h, const ProtobufCFieldDescriptor *f, enum mood mood, unsigned depth,
                      struct buf *out)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_STRING:
        put_tag(out, f->id, WIRE_BYTES);
        put_text(h, mood, out);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        put_tag(out, f->id, WIRE_BYTES);
        put_bytes(h, mood, out);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        put_tag(out, f->id, WIRE_BYTES);
        put_part(h, f->descriptor, mood, depth, out);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        put_tag(out, f->id, WIRE_VARINT);
        put_varint(out, mood != MIXED || below(h, 2));
        break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_ENUM:
        put_tag(out, f->id, WIRE_VARINT);
        put_varint(out, number(h, mood));
        break;
    default:
        abort(); /* a kind that control.proto did not use before: to be added here */
    }
}

/* How often a field is there. */
static size_t times(struct hostile *h, const ProtobufCFieldDescriptor *f, enum mood mood, unsigned depth)
{
    static const size_t many[] = {0, 1, 1, 2, 3, 70, 300};
    bool whole = f->type == PROTOBUF_C_TYPE_MESSAGE;
    if (whole && depth >= DEPTH_MAX)
        return 0;
    if (mood == ONES)
        return 1;
    if (f->label != PROTOBUF_C_LABEL_REPEATED)
        return mood == HIGHEST ? 1 : below(h, 20) == 0 ? 2 : below(h, 3) > 0;
    if (mood == HIGHEST)
        return whole ? 20 >> (2 * depth) : f->type == PROTOBUF_C_TYPE_STRING ? 100 : 2000;
    return whole && depth > 1 ? below(h, 3) : many[below(h, sizeof many / sizeof *many)];
}

static void put_fields(struct hostile *h, const ProtobufCMessageDescriptor *type, enum mood mood,
                       unsigned depth, struct buf *out)
{
    for (unsigned i = 0; i < type->n_fields && mood != EMPTY; i++)
        for (size_t k = times(h, &type->fields[i], mood, depth); k > 0; k--)
            put_field(h, &type->fields[i], mood, depth, out);
    if (mood == MIXED && below(h, 8) == 0) {
        put_tag(out, UNKNOWN_TAG, WIRE_VARINT);
        put_varint(out, hostile_random(h));
    }
}

/* ---- messages ------------------------------------------------------------------------------------------ */

void hostile_message(struct hostile *h, const ProtobufCMessageDescriptor *type, struct buf *out)
{
    put_fields(h, type, below(h, 8) == 0 ? HIGHEST : MIXED, 0, out);
}

void hostile_body(struct hostile *h, const ProtobufCFieldDescriptor *body, unsigned turn, struct buf *out)
{
    enum mood mood = turn < MIXED ? (enum mood)turn : MIXED;
    if (body->type != PROTOBUF_C_TYPE_MESSAGE) {
        put_field(h, body, mood, 0, out);
        return;
    }
    put_tag(out, body->id, WIRE_BYTES);
    put_part(h, body->descriptor, mood, 0, out);
}

size_t hostile_bodies(const ProtobufCMessageDescriptor *type)
{
    size_t n = 0;
    while (hostile_nth(type, n))
        n++;
    return n;
}

const ProtobufCFieldDescriptor *hostile_nth(const ProtobufCMessageDescriptor *type, size_t i)
{
    for (unsigned k = 0; k < type->n_fields; k++)
        if ((type->fields[k].flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && i-- == 0)
            return &type->fields[k];
    return NULL;
}

/* ---- how much ------------------------------------------------------------------------------------------ */

static uint64_t given(const char *name, uint64_t usual)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : usual;
}

uint64_t hostile_given_seed(void)
{
    return given("HOSTILE_SEED", 1);
}

unsigned hostile_turns(unsigned usual)
{
    return (unsigned)given("HOSTILE_TURNS", usual);
}
