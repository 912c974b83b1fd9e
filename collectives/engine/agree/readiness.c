/* One table of tensors by name (pending_tensors.h); a tensor is in it from the first report until this
 * host's whole subtree has reported. Then its report goes up (or, at the root, onto the list), in the
 * order in which subtrees became complete. */
#include "collectives/engine/agree/readiness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/agree/report.h"
#include "collectives/engine/agree/pending_tensors.h"
#include "common/base/buf.h"
#include "common/base/hash.h"
#include "common/net/link_bulk.h"

#define UP_MAX (8u << 20)

_Static_assert(TENSOR_MESSAGE_HEADER + REPORT_MAX <= READINESS_MESSAGE_MAX, "a message holds a report");
_Static_assert(READINESS_MESSAGE_MAX <= LINKS_CONTROL_MAX, "a frame holds a message");

struct readiness {
    uint32_t epoch;
    struct report_context context;
    char *names;

    struct reported_table reported;
    uint64_t ignored;

    struct buf up;      /* encoded reports for the parent (host 0: for host 1), each preceded by its length */
    struct buf down;    /* encoded list messages for the children, each preceded by its length */
    uint32_t down_next; /* the child that gets the first of them next */
    struct execution_list *list;
    /* Not zeroed: */
    uint8_t record[4 + REPORT_MAX]; /* a report that is made */
    uint8_t message[READINESS_MESSAGE_MAX];
};

static void forget_direct(void *ctx, const struct tensor_desc *desc);

/* ---- making it --------------------------------------------------------------------------------------- */

static int copy_hosts(struct readiness *r, const struct readiness_host *host, struct err *e)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < r->context.tree.hosts; i++)
        bytes += strlen(host[i].name) + 1;
    r->context.host = calloc(r->context.tree.hosts, sizeof *r->context.host);
    r->names = malloc(bytes);
    if (!r->context.host || !r->names)
        return err_set(e, ERR_MEMORY, "no memory for the readiness of %u hosts", r->context.tree.hosts);
    char *at = r->names;
    for (uint32_t i = 0; i < r->context.tree.hosts; i++) {
        size_t n = strlen(host[i].name) + 1;
        memcpy(at, host[i].name, n);
        r->context.host[i] = host[i];
        r->context.host[i].name = at;
        r->context.shape.ranks += host[i].ranks;
        if (host[i].ranks > r->context.shape.most)
            r->context.shape.most = host[i].ranks;
        at += n;
    }
    return 0;
}

struct readiness *readiness_new(const struct readiness_config *c, struct err *e)
{
    struct readiness *r = malloc(sizeof *r); /* of most sets only the beginning is ever touched */
    if (r)
        memset(r, 0, offsetof(struct readiness, record));
    if (!r || c->hosts == 0 || c->self >= c->hosts) {
        err_set(e, ERR_MEMORY, "no readiness for host %u of %u", c->self, c->hosts);
        free(r);
        return NULL;
    }
    r->epoch = c->epoch;
    buf_init(&r->up, UP_MAX);
    buf_init(&r->down, UP_MAX);
    r->context.shape.hosts = c->hosts;
    r->context.data_bytes = c->data_bytes < TENSOR_DATA_MAX ? c->data_bytes : TENSOR_DATA_MAX;
    r->context.cache = tensor_cache_new(c->cache_capacity);
    r->list = reported_init(&r->reported) == 0 && r->context.cache
                  ? execution_list_new(r->epoch, r->context.cache, c->fusion_bytes, e)
                  : NULL;
    if (!r->list || host_tree_init(&r->context.tree, c->self, c->hosts) < 0 ||
        copy_hosts(r, c->host, e) < 0) {
        err_set(e, ERR_MEMORY, "no memory for readiness");
        readiness_free(r);
        return NULL;
    }
    execution_list_tell(r->list, forget_direct, r);
    return r;
}

void readiness_free(struct readiness *r)
{
    if (!r)
        return;
    reported_free(&r->reported);
    buf_free(&r->up);
    buf_free(&r->down);
    execution_list_free(r->list);
    tensor_cache_free(r->context.cache);
    host_tree_free(&r->context.tree);
    free(r->context.host);
    free(r->names);
    free(r);
}

/* ---- agreement ----------------------------------------------------------------------------------------- */

static void ranks_text(const struct readiness *r, uint32_t host, char *text, size_t size)
{
    const struct readiness_host *h = &r->context.host[host];
    uint32_t first = h->first_rank + h->shift;
    if (h->ranks > 1 && !h->gaps) /* all of a host agree: where they are not in a row, the first speaks */
        snprintf(text, size, "ranks %u-%u (%.60s) have", first, first + h->ranks - 1, h->name);
    else
        snprintf(text, size, "rank %u (%.60s) has", first, h->name);
}

/* Does what is said differ from what was known? `text` gets the sentence for the first property in which it
 * does. The first host that names the place of an operation without elements decides it. */
static bool report_difference(const struct readiness *r, struct reported *t, const struct report *said,
                              char text[TENSOR_ERROR_MAX + 1])
{
    struct tensor_op known = t->desc.what, other = said->desc.what, *a = &known, *b = &other;
    uint32_t host_a = t->witness, host_b = said->witness;
    bool learns = op_goes_along(a, b);
    op_goes_along(b, a);
    int p = op_difference(a, b);
    if (p < 0 && learns) {
        t->desc.what.device = a->device;
        t->witness = host_b;
    }
    if (p < 0)
        return false;
    bool swap = host_b < host_a;
    char ranks[2][128];
    ranks_text(r, swap ? host_b : host_a, ranks[0], sizeof ranks[0]);
    ranks_text(r, swap ? host_a : host_b, ranks[1], sizeof ranks[1]);
    char value[2][64];
    op_property_text(swap ? b : a, p, value[0], sizeof value[0]);
    op_property_text(swap ? a : b, p, value[1], sizeof value[1]);
    /* The ranks and the values first: a long name may be cut, they may not. */
    int room =
        (int)(TENSOR_ERROR_MAX - strlen(ranks[0]) - strlen(ranks[1]) - strlen(value[0]) - strlen(value[1])) -
        20;
    snprintf(text, TENSOR_ERROR_MAX + 1, "tensor '%.*s': %s %s, %s %s", room, t->desc.name, ranks[0],
             value[0], ranks[1], value[1]);
    return true;
}

/* ---- reports ------------------------------------------------------------------------------------------- */

size_t readiness_data(const struct readiness *r, const struct tensor_op *what)
{
    return contribution_bytes(what, &r->context.shape, r->context.data_bytes);
}

/* Those that agree, with what is known of the tensor. -1: no memory. */
static int keep_parts(struct readiness *r, struct reported *t, const struct report *said)
{
    const struct tensor_op *op = &t->desc.what;
    if (said->parts > 0 && !t->parts)
        t->parts = malloc(contributions_bytes(op, r->context.tree.hosts, said->bytes));
    if (said->parts > 0 && !t->parts)
        return -1;
    for (uint32_t i = 0; i < said->parts; i++) {
        const uint8_t *part = said->first + i * (4 + said->bytes);
        memcpy(t->parts + contribution_offset(op, get_u32(part), said->bytes), part + 4, said->bytes);
    }
    return 0;
}

/* All contributions to their result, in place of the first one. */
static int reduce_parts(struct readiness *r, struct reported *t, struct err *e)
{
    size_t bytes = readiness_data(r, &t->desc.what);
    return contributions_reduce(&t->desc.what, &r->context.shape, t->parts, bytes) == 0
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for the result of '%s'", t->desc.name);
}

/* The result, where the elements came along. */
static int append_to_list(struct readiness *r, struct reported *t, struct err *e)
{
    if (t->desc.what.device == OP_EITHER) /* nobody has elements, so no device is needed */
        t->desc.what.device = 0;
    if (!t->parts || t->error)
        return execution_list_append(r->list, &t->desc, t->error, NULL, e);
    return reduce_parts(r, t, e) == 0 ? execution_list_append(r->list, &t->desc, NULL, t->parts, e) : -1;
}

static int queue_record(struct readiness *r, const struct writer *w, struct err *e)
{
    size_t size = sizeof r->record - 4 - w->left;
    put_u32(r->record, (uint32_t)size);
    return buf_put(&r->up, r->record, 4 + size) == 0
               ? 0
               : err_set(e, ERR_MEMORY,
                         "no memory: too many announcements of tensors wait to be sent to another host");
}

static int queue_up(struct readiness *r, struct reported *t, struct err *e)
{
    struct writer w = writer_of(r->record + 4, sizeof r->record - 4);
    readiness_report_write(&r->context, &w, &t->desc, t->error, t->witness, t->error ? NULL : t->parts);
    return queue_record(r, &w, e);
}

static int queue_direct(struct readiness *r, const struct report *said, struct err *e)
{
    struct writer w = writer_of(r->record + 4, sizeof r->record - 4);
    report_write_direct(&r->context, &w, said);
    return queue_record(r, &w, e);
}

/* Both of two hosts have said so directly. Host 0 puts a disagreement on the list. */
static int both_complete(struct readiness *r, struct reported *t, struct err *e)
{
    bool root = r->context.tree.self == 0;
    if (t->error)
        return root ? append_to_list(r, t, e) : 0;
    return !t->parts || reduce_parts(r, t, e) == 0 ? execution_list_direct(r->list, &t->desc, t->parts, e)
                                                   : -1;
}

/* The whole subtree has it: up to the parent, or onto the list. */
static int subtree_complete(struct readiness *r, struct reported *t, struct err *e)
{
    return r->context.tree.self == 0 ? append_to_list(r, t, e) : queue_up(r, t, e);
}

/* The next step when the last report has come. A host other than 0 that has sent a direct report waits for
 * the direct report of its parent. A host that has sent none learns the result from the list. */
static int go_on(struct readiness *r, struct reported **place, struct err *e)
{
    struct reported *t = *place;
    bool waits_for_parent = r->context.tree.self != 0 && t->direct > 0;
    if (t->reports < r->context.tree.children + 1 + waits_for_parent)
        return 0;
    int rc = t->direct == 2 ? both_complete(r, t, e) : subtree_complete(r, t, e);
    reported_remove(&r->reported, place);
    return rc;
}

/* Child number `who`, REPORTED_SELF or REPORTED_PARENT, says it. 1: counted, 0: it had been said, -1 with *e.
 */
static int count_report(struct readiness *r, uint32_t who, const struct report *said, struct err *e)
{
    const struct tensor_desc *desc = &said->desc;
    uint32_t hash = hash_text(0, desc->name);
    struct reported *t = *reported_find(&r->reported, desc->name, hash);
    uint64_t bit = 1ull << (who % 64);
    if (t && (t->seen[who / 64] & bit))
        return 0;
    if (!t && r->reported.tensors < READINESS_PENDING_MAX)
        t = reported_add(&r->reported, desc, hash, said->witness);
    if (!t)
        return err_set(e, ERR_MEMORY, "%u tensors wait for other hosts: no room for '%s'",
                       r->reported.tensors, desc->name);
    t->seen[who / 64] |= bit;
    t->reports++;
    t->direct += said->direct;
    if (t->desc.known != said->desc.known)
        t->desc.known = 0;
    char text[TENSOR_ERROR_MAX + 1];
    bool wrong = said->error[0] || report_difference(r, t, said, text);
    if (wrong && !t->error)
        t->error = strdup(said->error[0] ? said->error : text);
    if ((wrong && !t->error) || (!t->error && keep_parts(r, t, said) < 0))
        return err_set(e, ERR_MEMORY, "no memory for the elements of tensor '%s', or for its error",
                       desc->name);
    return go_on(r, reported_find(&r->reported, desc->name, hash), e) < 0 ? -1 : 1;
}

/* On the list: whatever has been said directly of it is settled by that. */
static void forget_direct(void *ctx, const struct tensor_desc *desc)
{
    struct readiness *r = ctx;
    struct reported **t = NULL;
    if (r->context.tree.hosts == 2 && r->reported.tensors > 0)
        t = reported_find(&r->reported, desc->name, hash_text(0, desc->name));
    if (t && *t)
        reported_remove(&r->reported, t);
}

int readiness_local(struct readiness *r, const struct tensor_desc *desc, const char *error, const void *data,
                    struct err *e)
{
    uint8_t part[4 + TENSOR_DATA_MAX];
    struct report said; /* most of it is room for a sentence */
    if (tensor_desc_check(desc, e) < 0)
        return -1;
    said.witness = r->context.tree.self;
    said.desc = *desc;
    said.error[0] = '\0';
    said.bytes = said.parts = 0;
    said.first = NULL;
    if (error)
        snprintf(said.error, sizeof said.error, "%s", error);
    else
        said.bytes = readiness_data(r, &desc->what);
    if (said.bytes > 0 && report_contributes(&r->context, &desc->what, r->context.tree.self)) {
        said.parts = 1;
        put_u32(part, r->context.tree.self);
        memcpy(part + 4, data, said.bytes);
        said.first = part;
    }
    said.direct = !error && report_may_be_direct(&r->context, &desc->what) &&
                  tensor_cache_find(r->context.cache, desc) != TENSOR_CACHE_NONE;
    int rc = count_report(r, REPORTED_SELF, &said, e);
    if (rc == 0)
        return err_set(e, ERR_PROTOCOL, "tensor '%s' was announced and is not on the list yet", desc->name);
    return rc < 0 || (said.direct && queue_direct(r, &said, e) < 0) ? -1 : 0;
}

/* Twice over the message: first all of it is checked, then it is counted. */
static int receive_ready(struct readiness *r, uint32_t from, struct reader in, uint16_t count, struct err *e)
{
    struct reader check = in;
    bool child = host_tree_is_child(&r->context.tree, from);
    if (!child && (r->context.tree.hosts != 2 || from == r->context.tree.self))
        return err_set(e, ERR_PROTOCOL, "host %u is no child of host %u", from, r->context.tree.self);
    struct report said;
    for (uint16_t i = 0; i < count; i++)
        if (report_read(&r->context, &check, from, &said, e) < 0)
            return -1;
    if (check.left != 0)
        return err_set(e, ERR_PROTOCOL, "a message about tensors has %zu bytes too many", check.left);
    for (uint16_t i = 0; i < count; i++) {
        report_read(&r->context, &in, from, &said, NULL);
        int rc = count_report(r, child ? from - r->context.tree.first_child : REPORTED_PARENT, &said, e);
        if (rc < 0)
            return -1;
        r->ignored += rc == 0;
    }
    return 0;
}

static int queue_down(struct readiness *r, const void *message, size_t size, struct err *e)
{
    if (r->context.tree.children == 0)
        return 0;
    uint8_t length[4];
    put_u32(length, (uint32_t)size);
    if (buf_room(&r->down) < size + 4 || buf_put(&r->down, length, 4) < 0 ||
        buf_put(&r->down, message, size) < 0)
        return err_set(e, ERR_MEMORY, "too many entries of the execution list wait for other hosts");
    return 0;
}

int readiness_receive(struct readiness *r, uint32_t from, const void *message, size_t size, struct err *e)
{
    struct reader in = reader_of(message, size);
    uint8_t type = read_u8(&in), pad = read_u8(&in);
    uint16_t count = read_u16(&in);
    uint32_t epoch = read_u32(&in);
    if (in.bad || pad != 0 || size > READINESS_MESSAGE_MAX)
        return err_set(e, ERR_PROTOCOL, "a malformed message about tensors");
    if (epoch != r->epoch) {
        r->ignored++;
        return 0;
    }
    if (type == READINESS_READY)
        return receive_ready(r, from, in, count, e);
    if (type != READINESS_LIST || r->context.tree.self == 0 || from != r->context.tree.parent)
        return err_set(e, ERR_PROTOCOL, "host %u sent a message of type %u, which it may not", from, type);
    int rc = execution_list_receive(r->list, message, size, e);
    r->ignored += rc == 0;
    return rc > 0 ? queue_down(r, message, size, e) : rc;
}

/* ---- messages to other hosts --------------------------------------------------------------------------- */

/* As many reports as fit into one message. */
static size_t encode_up(struct readiness *r)
{
    uint16_t count = 0;
    struct writer w = writer_of(r->message, sizeof r->message);
    w.at += TENSOR_MESSAGE_HEADER;
    w.left -= TENSOR_MESSAGE_HEADER;
    while (r->up.len > 0 && count < UINT16_MAX) {
        uint32_t size = get_u32(buf_data(&r->up));
        if (size > w.left)
            break;
        write_bytes(&w, buf_data(&r->up) + 4, size);
        buf_consume(&r->up, 4 + size);
        count++;
    }
    tensor_message_header(r->message, READINESS_READY, count, r->epoch);
    return sizeof r->message - w.left;
}

/* The first of the messages for the children, for the child whose turn it is. */
static size_t next_down(struct readiness *r, uint32_t *to)
{
    uint32_t size = get_u32(buf_data(&r->down));
    *to = r->context.tree.first_child + r->down_next;
    if (r->down_next == 0)
        memcpy(r->message, buf_data(&r->down) + 4, size);
    if (++r->down_next == r->context.tree.children) {
        r->down_next = 0;
        buf_consume(&r->down, 4 + size);
    }
    return size;
}

/* Reports before the list: host 0's direct one of a tensor must not come after the entry that replaces it. */
bool readiness_next_message(struct readiness *r, uint32_t *to, const void **message, size_t *size)
{
    const struct host_tree *tree = &r->context.tree;
    *message = r->message;
    if (r->up.len > 0) {
        *to = tree->self == 0 ? tree->first_child : tree->parent;
        *size = encode_up(r);
        return true;
    }
    if (r->down.len == 0 && tree->self == 0) {
        long n = execution_list_encode(r->list, r->message, sizeof r->message, NULL);
        if (n <= 0 || queue_down(r, r->message, (size_t)n, NULL) < 0)
            return false;
    }
    if (r->down.len == 0)
        return false;
    *size = next_down(r, to);
    return true;
}

/* A tensor of two hosts that waits here; NULL: it does not. */
static const struct reported *find_of_two(const struct readiness *r, const char *name)
{
    return r->context.tree.hosts == 2 ? *reported_find(&r->reported, name, hash_text(0, name)) : NULL;
}

static bool was_reported_here(const struct reported *t)
{
    return (t->seen[REPORTED_SELF / 64] >> (REPORTED_SELF % 64) & 1) != 0;
}

bool readiness_was_direct(const struct readiness *r, const char *name)
{
    const struct reported *t = find_of_two(r, name);

    return t && t->direct > 0 && was_reported_here(t);
}

bool readiness_lacks(const struct readiness *r, const char *name)
{
    const struct reported *t = find_of_two(r, name);

    return t && !was_reported_here(t);
}

struct execution_list *readiness_list(const struct readiness *r)
{
    return r->list;
}

bool readiness_is_idle(const struct readiness *r)
{
    return r->up.len == 0 && r->down.len == 0 && execution_list_is_empty(r->list);
}

uint64_t readiness_ignored(const struct readiness *r)
{
    return r->ignored;
}
