#include "collectives/engine/agree/execution_list.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engine/agree/contributions.h"
#include "collectives/engine/agree/fusion.h"
#include "collectives/engine/agree/readiness.h"
#include "collectives/engine/agree/tensor_wire.h"

#define LIST_HEADER (TENSOR_MESSAGE_HEADER + 8)

/* Not a fixed-size entry with its longest sentence: most have none, and many may wait. */
struct node {
    struct node *next;
    struct tensor_desc desc;
    uint8_t *data;
    bool joined;
    char error[];
};

struct execution_list {
    uint32_t epoch;
    struct tensor_cache *cache;
    uint64_t end;   /* number of the last entry on the list */
    uint64_t taken; /* number of the last entry that execution_list_next gave */
    struct node *first, *last;
    struct node *direct, *direct_last;
    void (*came)(void *ctx, const struct tensor_desc *desc);
    void *came_ctx;
    struct node *unsent, *unsent_last; /* root: not on the list yet */
    uint32_t unsents;
    uint32_t fences;  /* of those: what lets all others go */
    uint32_t patient; /* of those: what may be held */
    uint64_t patient_bytes;
    struct node *none; /* NULL */
    uint64_t fusion_bytes;
    bool hold;
};

struct execution_list *execution_list_new(uint32_t epoch, struct tensor_cache *cache, uint64_t fusion_bytes,
                                          struct err *e)
{
    struct execution_list *list = calloc(1, sizeof *list);
    if (!list) {
        err_set(e, ERR_MEMORY, "no memory for the execution list");
        return NULL;
    }
    list->epoch = epoch;
    list->cache = cache;
    list->fusion_bytes = fusion_bytes;
    return list;
}

static void free_node(struct node *n)
{
    if (n)
        free(n->data);
    free(n);
}

static void free_nodes(struct node *n)
{
    while (n) {
        struct node *next = n->next;
        free_node(n);
        n = next;
    }
}

void execution_list_free(struct execution_list *list)
{
    if (!list)
        return;
    free_nodes(list->first);
    free_nodes(list->direct);
    free_nodes(list->unsent);
    free(list);
}

static struct node *make_node(const struct tensor_desc *desc, const char *error, const void *data)
{
    size_t text = error ? strnlen(error, TENSOR_ERROR_MAX) : 0;
    struct node *n = malloc(sizeof *n + text + 1);
    if (!n)
        return NULL;
    n->next = NULL;
    n->joined = false;
    n->desc = *desc;
    n->data = data ? malloc(tensor_data_bytes(&desc->what)) : NULL;
    if (data && !n->data) {
        free(n);
        return NULL;
    }
    if (data)
        memcpy(n->data, data, tensor_data_bytes(&desc->what));
    if (text)
        memcpy(n->error, error, text);
    n->error[text] = '\0';
    return n;
}

static void put_node(struct node **first, struct node **last, struct node *n)
{
    *(*first ? &(*last)->next : first) = n;
    *last = n;
}

/* Could it travel with others? */
static bool can_fuse(const struct execution_list *list, const struct node *n)
{
    return !n->data && !n->error[0] && fusion_can(&n->desc.what, list->fusion_bytes);
}

/* It comes (1) or goes (-1). */
static void count_patient(struct execution_list *list, const struct node *n, int sign)
{
    if (!can_fuse(list, n))
        return;
    list->patient += (uint32_t)sign;
    list->patient_bytes += (uint64_t)sign * tensor_data_bytes(&n->desc.what);
}

int execution_list_append(struct execution_list *list, const struct tensor_desc *desc, const char *error,
                          const void *data, struct err *e)
{
    struct node *n = make_node(desc, error, data);
    if (!n || tensor_cache_reserve(list->cache, list->unsents + 1) < 0) {
        free_node(n);
        return err_set(e, ERR_MEMORY, "no memory for the execution list");
    }
    put_node(&list->unsent, &list->unsent_last, n);
    list->unsents++;
    list->fences += !op_moves(desc->what.kind);
    count_patient(list, n, 1);
    return 0;
}

int execution_list_direct(struct execution_list *list, const struct tensor_desc *desc, const void *data,
                          struct err *e)
{
    struct node *n = make_node(desc, NULL, data);
    if (!n)
        return err_set(e, ERR_MEMORY, "no memory for the result of '%s'", desc->name);
    put_node(&list->direct, &list->direct_last, n);
    return 0;
}

void execution_list_tell(struct execution_list *list, void (*came)(void *ctx, const struct tensor_desc *desc),
                         void *ctx)
{
    list->came = came;
    list->came_ctx = ctx;
}

static size_t wire_most(const struct node *n)
{
    return TENSOR_WIRE_MAX + (n->data ? tensor_data_bytes(&n->desc.what) : 0);
}

static bool must_hold(const struct execution_list *list)
{
    return list->hold && list->fences == 0;
}

/* The place of the next one to go onto the list; *place NULL: there is none now. */
static struct node **next_to_list(struct execution_list *list)
{
    struct node **at = &list->unsent;
    if (must_hold(list) && list->patient == list->unsents)
        return &list->none;
    while (*at && must_hold(list) && can_fuse(list, *at))
        at = &(*at)->next;
    return at;
}

/* The place of one that travels with `n`, from `at` on; NULL: there is none. */
static struct node **find_partner(struct execution_list *list, struct node **at, const struct node *n,
                                  uint64_t room)
{
    for (int i = 0; *at && i < FUSION_LOOK_AHEAD; i++, at = &(*at)->next)
        if (can_fuse(list, *at) && tensor_data_bytes(&(*at)->desc.what) <= room &&
            fusion_goes_with(&n->desc.what, &(*at)->desc.what))
            return at;
    return NULL;
}

static struct node *take_out(struct execution_list *list, struct node **at)
{
    struct node *n = *at;
    *at = n->next;
    n->next = NULL;
    list->unsents--;
    list->fences -= !op_moves(n->desc.what.kind);
    count_patient(list, n, -1);
    if (list->unsent_last == n && list->unsent) /* it was not the only one: `at` is in the one before */
        list->unsent_last = (struct node *)((char *)at - offsetof(struct node, next));
    return n;
}

/* It becomes the next entry, and goes into the message. */
static void list_one(struct execution_list *list, struct writer *w, struct node *n)
{
    tensor_wire_put(w, list->cache, &n->desc, n->error,
                    (n->data ? TENSOR_HAS_DATA : 0) | (n->joined ? TENSOR_JOINED : 0));
    if (n->data)
        write_bytes(w, n->data, tensor_data_bytes(&n->desc.what));
    if (!n->error[0])
        tensor_cache_put(list->cache, &n->desc); /* there is room */
    put_node(&list->first, &list->last, n);
    list->end++;
}

/* The one at `at`, and all that travel with it as far as the message has room. Returns their number. */
static uint16_t list_batch(struct execution_list *list, struct writer *w, struct node **at, uint16_t most)
{
    struct node *n = take_out(list, at);
    uint64_t bytes = tensor_data_bytes(&n->desc.what);
    uint16_t count = 1;
    while (n) {
        struct node **partner = NULL;
        if (count < most && w->left >= 2 * TENSOR_WIRE_MAX && can_fuse(list, n) && bytes < list->fusion_bytes)
            partner = find_partner(list, at, n, list->fusion_bytes - bytes);
        struct node *next = partner ? take_out(list, partner) : NULL;
        n->joined = next != NULL;
        list_one(list, w, n);
        if (next) {
            bytes += tensor_data_bytes(&next->desc.what);
            at = partner;
            count++;
        }
        n = next;
    }
    return count;
}

long execution_list_encode(struct execution_list *list, void *message, size_t size, struct err *e)
{
    uint16_t count = 0;
    struct writer w = writer_of(message, size);
    struct node **at = next_to_list(list);
    if (!*at)
        return 0;
    if (size < LIST_HEADER + wire_most(*at))
        return err_set(e, ERR_MEMORY, "%zu bytes hold no entry of the execution list", size);
    w.at += TENSOR_MESSAGE_HEADER;
    w.left -= TENSOR_MESSAGE_HEADER;
    write_u64(&w, list->end + 1);
    for (; *at && w.left >= wire_most(*at) && count < UINT16_MAX; at = next_to_list(list))
        count = (uint16_t)(count + list_batch(list, &w, at, (uint16_t)(UINT16_MAX - count)));
    tensor_message_header(message, READINESS_LIST, count, list->epoch);
    return (long)(size - w.left);
}

void execution_list_hold(struct execution_list *list, bool hold)
{
    list->hold = hold;
}

bool execution_list_could_gather(const struct execution_list *list)
{
    return list->patient > 0 && list->fences == 0 && list->patient_bytes < list->fusion_bytes;
}

void execution_list_fuse(struct execution_list *list, uint64_t fusion_bytes)
{
    list->fusion_bytes = fusion_bytes;
    list->patient = 0;
    list->patient_bytes = 0;
    for (const struct node *n = list->unsent; n; n = n->next)
        count_patient(list, n, 1);
}

bool execution_list_wants_more(const struct execution_list *list)
{
    return list->unsent && !must_hold(list);
}

bool execution_list_is_empty(const struct execution_list *list)
{
    return !list->unsent && !list->first;
}

static struct node *read_entry(struct reader *r, struct execution_list *list, struct err *e)
{
    struct tensor_desc desc;
    char error[TENSOR_ERROR_MAX + 1];
    const uint8_t *data = NULL;
    uint32_t flags;
    bool in_full;
    if (tensor_wire_get(r, list->cache, &desc, error, &flags, &in_full, e) < 0)
        return NULL;
    if ((flags & TENSOR_DIRECT) || desc.what.device == OP_EITHER) {
        err_set(e, ERR_PROTOCOL, "a malformed execution list");
        return NULL;
    }
    if (flags & TENSOR_HAS_DATA) {
        /* Of this kind and size it may be; a contribution has up to twice the bytes of a result. */
        const struct partial_shape any = {.hosts = 1, .ranks = 1, .most = 1};
        uint64_t bytes = tensor_data_bytes(&desc.what);
        bool may = bytes <= TENSOR_DATA_MAX && contribution_bytes(&desc.what, &any, 2 * TENSOR_DATA_MAX) > 0;
        data = may && !error[0] ? read_bytes(r, bytes) : NULL;
        if (!data) {
            err_set(e, ERR_PROTOCOL, "a malformed execution list");
            return NULL;
        }
    }
    struct node *n = make_node(&desc, error, data);
    if (n)
        n->joined = flags & TENSOR_JOINED;
    else
        err_set(e, ERR_MEMORY, "no memory for the execution list");
    return n;
}

/* Reads all entries, so that a malformed one is found before anything changes; nodes of those from `skip` on.
 */
static int read_entries(struct reader *r, struct execution_list *list, uint16_t count, uint64_t skip,
                        struct node **first, struct node **last, struct err *e)
{
    bool joined = false;
    for (uint16_t i = 0; i < count; i++) {
        struct node *n = read_entry(r, list, e);
        if (!n)
            return -1;
        joined = n->joined;
        if (i < skip)
            free_node(n);
        else
            put_node(first, last, n);
    }
    if (joined)
        return err_set(e, ERR_PROTOCOL, "a part of an operation that does not go on");
    if (r->left > 0)
        return err_set(e, ERR_PROTOCOL, "a message about tensors has %zu bytes too many", r->left);
    return tensor_cache_reserve(list->cache, count) == 0
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for the execution list");
}

int execution_list_receive(struct execution_list *list, const void *message, size_t size, struct err *e)
{
    struct reader r = reader_of(message, size);
    uint8_t type = read_u8(&r), pad = read_u8(&r);
    uint16_t count = read_u16(&r);
    uint32_t epoch = read_u32(&r);
    uint64_t number = read_u64(&r);
    if (r.bad || type != READINESS_LIST || pad != 0 || count == 0 || number == 0)
        return err_set(e, ERR_PROTOCOL, "a malformed execution list");
    if (epoch != list->epoch)
        return 0;
    if (number > list->end + 1)
        return err_set(e, ERR_PROTOCOL, "the execution list jumps from %llu to %llu",
                       (unsigned long long)list->end, (unsigned long long)number);
    uint64_t known = list->end + 1 - number;
    struct node *first = NULL, *last = NULL;
    if (read_entries(&r, list, count, known, &first, &last, e) < 0) {
        free_nodes(first);
        return -1;
    }
    if (!first)
        return 0;
    for (const struct node *n = first; n; n = n->next) {
        if (!n->error[0])
            tensor_cache_put(list->cache, &n->desc);
        if (list->came)
            list->came(list->came_ctx, &n->desc);
    }
    *(list->first ? &list->last->next : &list->first) = first;
    list->last = last;
    list->end += count - known;
    return 1;
}

bool execution_list_has_next(const struct execution_list *list)
{
    return list->direct || list->first;
}

static bool has_name(const struct node *n, const char *name)
{
    while (n && strcmp(n->desc.name, name) != 0)
        n = n->next;
    return n != NULL;
}

bool execution_list_names(const struct execution_list *list, const char *name)
{
    return has_name(list->direct, name) || has_name(list->first, name);
}

uint64_t execution_list_end(const struct execution_list *list)
{
    return list->end;
}

bool execution_list_next(struct execution_list *list, struct list_entry *entry)
{
    struct node **from = list->direct ? &list->direct : &list->first, *n = *from;
    if (!n)
        return false;
    entry->number = from == &list->direct ? 0 : ++list->taken;
    *from = n->next;
    entry->desc = n->desc;
    memcpy(entry->error, n->error, strlen(n->error) + 1);
    entry->data = n->data;
    entry->joined = n->joined;
    free(n);
    return true;
}
