/* Publish, lookup, unpublish, as this host's ranks ask for them.
 *
 * A key lives at one host, which its name chooses (pmix_store.c). An operation on some keys asks each of
 * their hosts, and ends when all have answered or when a lookup has found as much as it waited for. */
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/buf.h"
#include "common/base/cursor.h"

struct part { /* one key, or (unpublishing all) one host */
    struct operation *of;
    char key[PMIX_MAX_KEYLEN + 1];
    uint32_t host;
    uint8_t *message;
    size_t len;
    bool answered;
};

struct operation {
    struct upcall item;
    struct part *part;
    size_t parts, open, found, wanted; /* wanted: of a lookup that waits, how many values are enough */
    pmix_status_t status;
    pmix_pdata_t *data; /* of a lookup */
    pmix_op_cbfunc_t op;
    pmix_lookup_cbfunc_t lookup;
    void *ctx;
    bool ended;
};

static uint32_t host_of_key(const char *key)
{
    uint64_t sum = 1469598103934665603u;
    for (const char *p = key; *p; p++)
        sum = (sum ^ (uint8_t)*p) * 1099511628211u;
    return (uint32_t)((sum >> 16) % pmix_server.r->spawn->n_host);
}

static void free_operation(struct operation *o)
{
    for (size_t i = 0; i < o->parts; i++)
        free(o->part[i].message);
    if (o->data)
        PMIX_PDATA_FREE(o->data, o->parts);
    free(o->part);
    free(o);
}

static void finish_operation(struct operation *o)
{
    o->ended = true;
    if (o->op)
        o->op(o->status, o->ctx);
    else if (o->found >= o->wanted)
        o->lookup(PMIX_SUCCESS, o->data, o->found, o->ctx);
    else if (o->found > 0)
        o->lookup(PMIX_ERR_PARTIAL_SUCCESS, o->data, o->found, o->ctx);
    else
        o->lookup(o->status == PMIX_SUCCESS ? PMIX_ERR_NOT_FOUND : o->status, NULL, 0, o->ctx);
}

static pmix_status_t take_value(struct operation *o, const char *key, const uint8_t *data, size_t len)
{
    pmix_pdata_t *d = &o->data[o->found];
    pmix_byte_object_t bytes = {(char *)(uintptr_t)(data + 8), len - 8};
    pmix_data_buffer_t buffer;
    int32_t one = 1;
    PMIX_LOAD_PROCID(&d->proc, pmix_server.space, get_u32(data + 4));
    PMIX_LOAD_KEY(d->key, key);
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    pmix_status_t rc = PMIx_Data_embed(&buffer, &bytes);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_Data_unpack(NULL, &buffer, &d->value, &one, PMIX_VALUE);
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    o->found += rc == PMIX_SUCCESS;
    return rc;
}

static void on_answer(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct part *p = ctx;
    struct operation *o = p->of;
    pmix_status_t rc = why || len < 4 ? PMIX_ERR_UNREACH : (pmix_status_t)get_u32(data);
    p->answered = true;
    if (rc == PMIX_SUCCESS && o->lookup && !o->ended)
        rc = len >= 8 ? take_value(o, p->key, data, len) : PMIX_ERR_UNPACK_FAILURE;
    if (rc != PMIX_SUCCESS && o->status == PMIX_SUCCESS)
        o->status = rc;
    o->open--;
    if (!o->ended && (o->open == 0 || (o->lookup && o->found >= o->wanted)))
        finish_operation(o);
    if (o->open == 0)
        free_operation(o);
}

static void begin_operation(struct upcall *item)
{
    struct operation *o = (struct operation *)item;
    o->open = o->parts;
    size_t parts = o->parts;
    if (parts == 0) {
        finish_operation(o);
        free_operation(o);
        return;
    }
    /* The last answer frees it. */
    for (size_t i = 0; i < parts; i++)
        pmix_ask(o->part[i].host, o->part[i].message, o->part[i].len, on_answer, &o->part[i]);
}

static struct operation *new_operation(size_t parts, void *ctx)
{
    struct operation *o = calloc(1, sizeof *o);
    struct part *part = calloc(parts ? parts : 1, sizeof *part);
    if (!o || !part) {
        free(o);
        free(part);
        return NULL;
    }
    o->item.run = begin_operation;
    o->part = part;
    o->ctx = ctx;
    return o;
}

/* `fields` of four bytes, the key when there is one, and a value. */
static bool add_part(struct operation *o, uint8_t what, const uint32_t *field, size_t fields, const char *key,
                     uint32_t host, const pmix_byte_object_t *value)
{
    struct part *p = &o->part[o->parts];
    size_t key_len = key ? strlen(key) : 0;
    if (key_len > PMIX_MAX_KEYLEN)
        return false;
    p->len = 1 + 4 * fields + (key ? 4 + key_len : 0) + (value ? value->size : 0);
    p->message = malloc(p->len);
    if (!p->message)
        return false;
    struct writer w = writer_of(p->message, p->len);
    write_u8(&w, what);
    for (size_t i = 0; i < fields; i++)
        write_u32(&w, field[i]);
    if (key) {
        write_u32(&w, (uint32_t)key_len);
        write_bytes(&w, key, key_len);
        memcpy(p->key, key, key_len);
    }
    if (value)
        write_bytes(&w, value->bytes, value->size);
    p->of = o;
    p->host = host;
    o->parts++;
    return true;
}

static bool add_value(struct operation *o, const uint32_t field[3], const pmix_info_t *info)
{
    pmix_byte_object_t bytes = {NULL, 0};
    pmix_data_buffer_t buffer;
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    bool good =
        PMIx_Data_pack(NULL, &buffer, (void *)(uintptr_t)&info->value, 1, PMIX_VALUE) == PMIX_SUCCESS &&
        PMIx_Data_unload(&buffer, &bytes) == PMIX_SUCCESS &&
        add_part(o, PMIX_MESSAGE_PUBLISH, field, 3, info->key, host_of_key(info->key), &bytes);
    free(bytes.bytes);
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    return good;
}

/* Not a directive, and not what the library adds. */
static bool is_data(const pmix_info_t *info)
{
    return strncmp(info->key, "pmix.", 5) != 0;
}

pmix_status_t pmix_publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos,
                           pmix_op_cbfunc_t done, void *ctx)
{
    uint32_t field[3] = {proc->rank, PMIX_RANGE_SESSION, PMIX_PERSIST_APP};
    struct operation *o = new_operation(infos, ctx);
    if (!o)
        return PMIX_ERR_NOMEM;
    o->op = done;
    for (size_t i = 0; i < infos; i++) {
        if (PMIX_CHECK_KEY(&info[i], PMIX_RANGE) && info[i].value.type == PMIX_DATA_RANGE)
            field[1] = info[i].value.data.range;
        else if (PMIX_CHECK_KEY(&info[i], PMIX_PERSISTENCE) && info[i].value.type == PMIX_PERSIST)
            field[2] = info[i].value.data.persist;
    }
    bool good = field[1] != PMIX_RANGE_CUSTOM;
    for (size_t i = 0; i < infos && good; i++)
        good = !is_data(&info[i]) || add_value(o, field, &info[i]);
    if (!good) {
        free_operation(o);
        return field[1] == PMIX_RANGE_CUSTOM ? PMIX_ERR_NOT_SUPPORTED : PMIX_ERR_BAD_PARAM;
    }
    upcall_queue_post(&pmix_server.upcalls, &o->item);
    return PMIX_SUCCESS;
}

pmix_status_t pmix_lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t infos,
                          pmix_lookup_cbfunc_t done, void *ctx)
{
    uint32_t field[3] = {proc->rank, 0, (uint32_t)pmix_timeout_of(info, infos)};
    size_t count = 0, wanted = 0;
    while (keys && keys[count])
        count++;
    struct operation *o = count ? new_operation(count, ctx) : NULL;
    if (!o)
        return count ? PMIX_ERR_NOMEM : PMIX_ERR_BAD_PARAM;
    o->lookup = done;
    for (size_t i = 0; i < infos; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_WAIT)) {
            field[1] = 1;
            wanted = info[i].value.type == PMIX_INT && info[i].value.data.integer > 0
                         ? (size_t)info[i].value.data.integer
                         : 0;
        }
    o->wanted = wanted && wanted < count ? wanted : count;
    PMIX_PDATA_CREATE(o->data, count);
    bool good = o->data != NULL;
    for (size_t i = 0; i < count && good; i++)
        good = add_part(o, PMIX_MESSAGE_LOOKUP, field, 3, keys[i], host_of_key(keys[i]), NULL);
    if (!good) {
        free_operation(o);
        return PMIX_ERR_BAD_PARAM;
    }
    upcall_queue_post(&pmix_server.upcalls, &o->item);
    return PMIX_SUCCESS;
}

pmix_status_t pmix_unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t infos,
                             pmix_op_cbfunc_t done, void *ctx)
{
    uint32_t rank = proc->rank, hosts = (uint32_t)pmix_server.r->spawn->n_host;
    size_t count = 0;
    (void)info, (void)infos;
    while (keys && keys[count])
        count++;
    struct operation *o = new_operation(keys ? count : hosts, ctx);
    if (!o)
        return PMIX_ERR_NOMEM;
    o->op = done;
    bool good = true;
    for (size_t i = 0; i < count && good; i++)
        good = add_part(o, PMIX_MESSAGE_UNPUBLISH, &rank, 1, keys[i], host_of_key(keys[i]), NULL);
    for (uint32_t h = 0; h < hosts && !keys && good; h++)
        good = add_part(o, PMIX_MESSAGE_UNPUBLISH, &rank, 1, NULL, h, NULL);
    if (!good) {
        free_operation(o);
        return PMIX_ERR_BAD_PARAM;
    }
    upcall_queue_post(&pmix_server.upcalls, &o->item);
    return PMIX_SUCCESS;
}
