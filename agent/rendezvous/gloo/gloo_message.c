#include "agent/rendezvous/gloo/gloo_message.h"

#include <string.h>

#include "common/base/cursor.h"

uint8_t *gloo_message_write(enum gloo_word word, const struct gloo_path *p, const struct gloo_value *value,
                            size_t *len)
{
    size_t path_len = p->scope_len + p->key_len + 2;
    *len = 3 + path_len + (value ? value->len : 0);
    uint8_t *bytes = malloc(*len);
    if (!bytes)
        return NULL;
    struct writer w = writer_of(bytes, *len);
    write_u8(&w, (uint8_t)word);
    write_u16(&w, (uint16_t)path_len);
    write_u8(&w, '/');
    write_bytes(&w, p->scope, p->scope_len);
    write_u8(&w, '/');
    write_bytes(&w, p->key, p->key_len);
    if (value)
        write_bytes(&w, value->bytes, value->len);
    return bytes;
}

int gloo_message_read(const uint8_t *data, size_t len, enum gloo_word *word, struct gloo_path *path,
                      struct gloo_value **value, struct err *e)
{
    struct reader r = reader_of(data, len);
    *word = (enum gloo_word)read_u8(&r);
    size_t path_len = read_u16(&r);
    const char *text = (const char *)read_bytes(&r, path_len);
    *value = NULL;
    if (r.bad || (*word != GLOO_WORD_PUT && *word != GLOO_WORD_DELETE) ||
        !gloo_path_parse(text, path_len, path) || (*word == GLOO_WORD_DELETE && r.left > 0))
        return err_set(e, ERR_PROTOCOL, "a Gloo message of %zu bytes is wrong", len);
    if (*word == GLOO_WORD_DELETE)
        return 0;
    *value = gloo_value_new(r.left);
    if (!*value)
        return err_set(e, ERR_MEMORY, "no memory for a Gloo value of %zu bytes", r.left);
    if (r.left > 0)
        memcpy((*value)->bytes, r.at, r.left);
    return 0;
}
