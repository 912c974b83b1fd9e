/* The messages of readiness and of the execution list, from a broken peer: the first byte of a message picks
 * who gets it from whom. Two of many hosts, and the two of a job that know a small tensor already. */
#include <stdint.h>
#include <stdlib.h>

#include "collectives/hvd.h"
#include "collectives/engine/agree/readiness.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HOSTS 70 /* an inner host (1, with children 65 to 69) below the root */

static void drain(struct readiness *r)
{
    struct list_entry entry;
    uint32_t to;
    const void *message;
    size_t size;
    while (readiness_next_message(r, &to, &message, &size))
        if (to >= HOSTS || size > READINESS_MESSAGE_MAX)
            abort();
    while (execution_list_next(readiness_list(r), &entry))
        if (!entry.desc.name[0])
            abort();
        else
            free(entry.data);
}

static const struct tensor_desc known = {
    .name = "a", .what = {.kind = SHM_ALLREDUCE, .dtype = HVD_FLOAT32, .op = HVD_SUM, .count = 1}};

static const struct tensor_desc barrier = {.name = "b",
                                           .what = {.kind = SHM_BARRIER, .prescale = 1, .postscale = 1}};

/* Both say them, and hear of each other. */
static void both_say(struct readiness *const pair[2])
{
    const float one = 1;
    uint32_t to;
    const void *message;
    size_t size;
    for (int i = 0; i < 2; i++)
        if (readiness_local(pair[i], &known, NULL, &one, NULL) == 0)
            readiness_local(pair[i], &barrier, NULL, NULL, NULL);
    for (int i = 0; i < 4; i++)
        while (readiness_next_message(pair[i % 2], &to, &message, &size))
            readiness_receive(pair[1 - i % 2], i % 2, message, size, NULL);
    for (int i = 0; i < 2; i++)
        drain(pair[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct readiness_host host[HOSTS];
    for (uint32_t i = 0; i < HOSTS; i++)
        host[i] = (struct readiness_host){.name = "node", .first_rank = i * 2, .ranks = 2};
    struct readiness_config c = {.epoch = 1, .self = 0, .hosts = HOSTS, .host = host};
    struct readiness *root = readiness_new(&c, NULL);
    c.self = 1;
    struct readiness *inner = readiness_new(&c, NULL);
    struct readiness *pair[2];
    c = (struct readiness_config){
        .epoch = 1, .hosts = 2, .host = host, .data_bytes = 64, .cache_capacity = 4, .fusion_bytes = 64};
    for (c.self = 0; c.self < 2; c.self++)
        pair[c.self] = readiness_new(&c, NULL);
    both_say(pair);
    readiness_local(inner, &known, NULL, NULL, NULL);
    while (size > 3) {
        bool two = data[0] & 2;
        struct readiness *r = two ? pair[data[0] & 1] : data[0] & 1 ? root : inner;
        uint32_t from = data[1] % (two ? 2 : HOSTS);
        const float one = 1;
        if (two && data[0] & 4)
            readiness_local(r, data[0] & 8 ? &barrier : &known, NULL, &one, NULL);
        size_t n = data[2] ? data[2] : size;
        data += 3, size -= 3;
        n = n < size ? n : size;
        readiness_receive(r, from, data, n, NULL);
        drain(r);
        data += n;
        size -= n;
    }
    both_say(pair);
    readiness_free(pair[0]);
    readiness_free(pair[1]);
    readiness_free(root);
    readiness_free(inner);
    return 0;
}
