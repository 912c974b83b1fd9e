#include "collectives/engine/execution_list.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/engine/readiness.h"
#include "collectives/engine/tensor_wire.h"

#define LIST_HEADER (TENSOR_MESSAGE_HEADER + 8)

/* Not a fixed-size entry with its longest sentence: most have none, and many may wait. */
struct node {
    struct node *next;
    struct tensor_desc desc;
    char error[];
};

struct execution_list {
    uint32_t epoch;
    uint64_t end;     /* number of the last entry known */
    uint64_t taken;   /* number of the last entry that execution_list_next gave */
    uint64_t encoded; /* number of the last entry that went into a message */
    struct node *first, *last;
    struct node *unsent; /* root: entry encoded + 1; kept after it was taken */
    struct node *unsent_last;
};

struct execution_list *execution_list_new(uint32_t epoch, struct err *e)
{
    struct execution_list *list = calloc(1, sizeof *list);
    if (!list)
        err_set(e, ERR_MEMORY, "no memory for the execution list");
    else
        list->epoch = epoch;
    return list;
}

static void free_nodes(struct node *n)
{
    while (n) {
        struct node *next = n->next;
        free(n);
        n = next;
    }
}

void execution_list_free(struct execution_list *list)
{
    if (!list)
        return;
    free_nodes(list->first);
    free_nodes(list->unsent);
    free(list);
}

static struct node *make_node(const struct tensor_desc *desc, const char *error)
{
    size_t text = error ? strnlen(error, TENSOR_ERROR_MAX) : 0;
    struct node *n = malloc(sizeof *n + text + 1);
    if (!n)
        return NULL;
    n->next = NULL;
    n->desc = *desc;
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

int execution_list_append(struct execution_list *list, const struct tensor_desc *desc, const char *error,
                          struct err *e)
{
    struct node *own = make_node(desc, error), *copy = make_node(desc, error);
    if (!own || !copy) {
        free(own);
        free(copy);
        return err_set(e, ERR_MEMORY, "no memory for the execution list");
    }
    put_node(&list->first, &list->last, own);
    put_node(&list->unsent, &list->unsent_last, copy);
    list->end++;
    return 0;
}

long execution_list_encode(struct execution_list *list, void *message, size_t size, struct err *e)
{
    uint16_t count = 0;
    struct writer w = writer_of(message, size);
    if (!list->unsent)
        return 0;
    if (size < LIST_HEADER + TENSOR_WIRE_MAX)
        return err_set(e, ERR_MEMORY, "%zu bytes hold no entry of the execution list", size);
    w.at += TENSOR_MESSAGE_HEADER;
    w.left -= TENSOR_MESSAGE_HEADER;
    write_u64(&w, list->encoded + 1);
    while (list->unsent && w.left >= TENSOR_WIRE_MAX && count < UINT16_MAX) {
        struct node *n = list->unsent;
        tensor_wire_write(&w, &n->desc, n->error);
        list->unsent = n->next;
        free(n);
        list->encoded++;
        count++;
    }
    tensor_message_header(message, READINESS_LIST, count, list->epoch);
    return (long)(size - w.left);
}

/* Reads all entries, so that a malformed one is found before anything changes; nodes of those from `skip` on.
 */
static int read_entries(struct reader *r, uint16_t count, uint64_t skip, struct node **first,
                        struct node **last, struct err *e)
{
    struct tensor_desc desc;
    char error[TENSOR_ERROR_MAX + 1];
    for (uint16_t i = 0; i < count; i++) {
        if (tensor_wire_read(r, &desc, error, e) < 0)
            return -1;
        if (i < skip)
            continue;
        struct node *n = make_node(&desc, error);
        if (!n)
            return err_set(e, ERR_MEMORY, "no memory for the execution list");
        put_node(first, last, n);
    }
    return r->left == 0 ? 0
                        : err_set(e, ERR_PROTOCOL, "a message about tensors has %zu bytes too many", r->left);
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
    if (read_entries(&r, count, known, &first, &last, e) < 0) {
        free_nodes(first);
        return -1;
    }
    if (!first)
        return 0;
    *(list->first ? &list->last->next : &list->first) = first;
    list->last = last;
    list->end += count - known;
    return 1;
}

bool execution_list_next(struct execution_list *list, struct list_entry *entry)
{
    struct node *n = list->first;
    if (!n)
        return false;
    list->first = n->next;
    entry->number = ++list->taken;
    entry->desc = n->desc;
    memset(entry->error, 0, sizeof entry->error);
    memcpy(entry->error, n->error, strlen(n->error));
    free(n);
    return true;
}
