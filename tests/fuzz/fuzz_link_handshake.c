/* The handshake against any bytes: as acceptor and as connector. The fuzzer sees what MACs are compared with,
 * so it may come through; a handshake that has ended, well or badly, then takes not a byte more. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/net/link_handshake.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A cheap keyed mix in OpenSSL's place, so that the fuzzer spends its time in our code. */
static int mix(const uint8_t key[AUTH_KEY_SIZE], const struct auth_part *part, size_t parts,
               uint8_t mac[AUTH_MAC_SIZE])
{
    memcpy(mac, key, AUTH_MAC_SIZE);
    for (size_t i = 0; i < parts; i++)
        for (size_t j = 0; j < part[i].size; j++) {
            uint8_t *at = &mac[j % AUTH_MAC_SIZE];
            *at = (uint8_t)((*at ^ ((const uint8_t *)part[i].data)[j]) * 167 + 13);
        }
    return 0;
}

static bool equal(const void *a, const void *b, size_t size)
{
    return memcmp(a, b, size) == 0;
}

static void play(struct link_handshake *h, const uint8_t *data, size_t size)
{
    while (size > 0) {
        size_t n = data[0] % 97 + 1; /* pieces of any length, also more than it wants */
        data++, size--;
        n = n < size ? n : size;
        if (link_handshake_receive(h, data, n, NULL) < 0)
            break;
        data += n;
        size -= n;
        size_t out;
        link_handshake_output(h, &out);
        link_handshake_sent(h, out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct auth_ops ops = {.hmac = mix, .equal = equal};
    static const uint8_t key[AUTH_KEY_SIZE] = {3,   141, 59, 26, 53, 58, 97, 93,
                                               238, 46,  26, 43, 38, 32, 79, 50};
    static const uint8_t nonce[AUTH_KEY_SIZE] = {1, 2, 3};
    const struct link_identity identity = {
        .auth = &ops, .key = key, .job = "job", .epoch = 1, .kind = LINK_ENGINE, .self = 1, .hosts = 3};
    struct link_handshake h;
    if (size == 0)
        return 0;
    if (data[0] & 1)
        link_handshake_accept(&h, &identity, nonce, NULL);
    else
        link_handshake_connect(&h, &identity, 0, nonce, NULL);
    play(&h, data + 1, size - 1);
    bool over = h.state == LINK_HANDSHAKE_READY || h.state == LINK_HANDSHAKE_AUTHENTICATED ||
                h.state == LINK_HANDSHAKE_FAILED;
    if (over && (link_handshake_wants(&h) != 0 || link_handshake_receive(&h, data, 1, NULL) == 0))
        abort();
    return 0;
}
