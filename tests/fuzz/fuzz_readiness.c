/* The messages of readiness and of the execution list, from a broken peer: the first byte of a message picks
 * who gets it from whom. */
#include <stdint.h>
#include <stdlib.h>

#include "collectives/hvd.h"
#include "collectives/engine/readiness.h"

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
    while (readiness_next_entry(r, &entry))
        if (!entry.desc.name[0])
            abort();
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
    struct tensor_desc d = {.name = "a",
                            .what = {.kind = SHM_ALLREDUCE, .dtype = HVD_FLOAT32, .op = HVD_SUM, .count = 1}};
    readiness_local(inner, &d, NULL, NULL, NULL);
    while (size > 3) {
        struct readiness *r = data[0] & 1 ? root : inner;
        uint32_t from = data[1] % HOSTS;
        size_t n = data[2] ? data[2] : size;
        data += 3, size -= 3;
        n = n < size ? n : size;
        readiness_receive(r, from, data, n, NULL);
        drain(r);
        data += n;
        size -= n;
    }
    readiness_free(root);
    readiness_free(inner);
    return 0;
}
