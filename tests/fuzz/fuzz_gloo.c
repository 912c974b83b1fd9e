/* Messages of other hosts to the Gloo store, and the store after any number of them: each is read or refused,
 * the limits hold, and what was put is there. The input is cut into messages by a length byte each. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/gloo/gloo_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void receive(struct gloo_store *s, const struct gloo_limits *limits, const uint8_t *bytes, size_t len)
{
    struct err e = ERR_INIT;
    struct gloo_path p;
    struct gloo_value *v;
    enum gloo_word word;
    size_t again_len;
    if (gloo_message_read(bytes, len, &word, &p, &v, &e) < 0) {
        if (e.code != ERR_PROTOCOL || v)
            abort();
        return;
    }
    uint8_t *again = gloo_message_write(word, &p, v, &again_len);
    if (!again || again_len != len || memcmp(again, bytes, len) != 0)
        abort();
    free(again);
    if (word == GLOO_WORD_DELETE)
        (void)gloo_store_delete(s, &p);
    else if (gloo_store_put(s, &p, v, &e) == 0 && gloo_store_get(s, &p) != v)
        abort();
    struct gloo_count count = gloo_store_count(s);
    if (count.keys > limits->keys || count.bytes > limits->bytes || count.scopes > limits->keys ||
        (count.scopes == 0) != (count.bytes == 0) || (count.scopes == 0 && count.keys > 0))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct gloo_limits limits = {.keys = 6, .bytes = 1500, .value = 60, .ranks = 3};
    struct gloo_store *s = gloo_store_new(&limits);
    struct gloo_path p;
    if (gloo_path_parse((const char *)data, size, &p) && p.scope_len + p.key_len + 2 != size)
        abort();
    while (s && size > 1) {
        size_t len = data[0] < size ? data[0] : size - 1;
        receive(s, &limits, data + 1, len);
        data += len + 1;
        size -= len + 1;
    }
    gloo_store_free(s);
    return 0;
}
