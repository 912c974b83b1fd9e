/* Readiness and the execution list: N hosts in one process, messages delivered in a random order from a
 * printed seed.
 *
 * HVD_TEST_SEED=n repeats a run. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "collectives/hvd.h"
#include "collectives/engine/agree/execution_list.h"
#include "collectives/engine/agree/readiness.h"
#include "collectives/engine/agree/tensor_wire.h"
#include "tests/unit/processor_time.h"

#define HOSTS_MAX   300
#define TENSORS_MAX 64

struct packet {
    struct packet *next;
    uint32_t from, to;
    size_t size;
    uint8_t bytes[];
};

struct world {
    uint32_t hosts, tensors;
    struct readiness *r[HOSTS_MAX];
    uint32_t announced[HOSTS_MAX];         /* of its own order */
    uint8_t order[HOSTS_MAX][TENSORS_MAX]; /* in which a host's tensors become complete */
    struct list_entry *entry[HOSTS_MAX];
    uint32_t entries[HOSTS_MAX];
    uint32_t sent[HOSTS_MAX];
    struct packet *first, *last;
};

static uint64_t random_state;

static uint32_t pick(uint32_t below) /* xorshift */
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 33) % below;
}

static void seed(void)
{
    const char *given = getenv("HVD_TEST_SEED");
    random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    printf("HVD_TEST_SEED=%llu\n", (unsigned long long)random_state);
    fflush(stdout);
}

static struct tensor_desc tensor(uint32_t i)
{
    struct tensor_desc d = {
        .what = {.kind = SHM_ALLREDUCE, .dtype = HVD_FLOAT32, .op = HVD_SUM, .count = 100 + i}};
    snprintf(d.name, sizeof d.name, "layer%u.weight", i);
    return d;
}

static struct readiness *new_readiness(uint32_t self, uint32_t hosts, uint32_t epoch)
{
    static struct readiness_host host[HOSTS_MAX];
    static char name[HOSTS_MAX][16];
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < hosts; i++) {
        snprintf(name[i], sizeof name[i], "node%u", i);
        host[i] = (struct readiness_host){.name = name[i], .first_rank = i * 4, .ranks = 4};
    }
    struct readiness_config c = {.epoch = epoch,
                                 .self = self,
                                 .hosts = hosts,
                                 .host = host,
                                 .data_bytes = 4096,
                                 .cache_capacity = TENSORS_MAX / 2};
    struct readiness *r = readiness_new(&c, &e);
    ck_assert_msg(r != NULL, "%s", e.text);
    return r;
}

/* The value that a host adds to element j of a tensor: sums of such values depend on their order. */
static float element(uint32_t host, uint64_t count, uint64_t j)
{
    return (float)(host % 3 == 0 ? 1e7 : 1) * ((float)host + 1.0f / (float)(j + count));
}

static int say(struct readiness *r, uint32_t host, const struct tensor_desc *d, struct err *e)
{
    float mine[1024];
    for (uint64_t j = 0; j < d->what.count && j < 1024; j++)
        mine[j] = element(host, d->what.count, j);
    return readiness_local(r, d, NULL, mine, e);
}

static void check_result(const struct list_entry *entry, uint32_t hosts)
{
    uint64_t count = entry->desc.what.count;
    for (uint64_t j = 0; j < count; j++) {
        float sum = element(0, count, j), got;
        for (uint32_t h = 1; h < hosts; h++)
            sum += element(h, count, j);
        memcpy(&got, entry->data + j * sizeof got, sizeof got);
        if (memcmp(&got, &sum, sizeof sum) != 0) /* Check writes each assertion down */
            ck_abort_msg("element %llu is %g, not %g", (unsigned long long)j, (double)got, (double)sum);
    }
}

static void world_new(struct world *w, uint32_t hosts, uint32_t tensors)
{
    memset(w, 0, sizeof *w);
    w->hosts = hosts;
    w->tensors = tensors;
    for (uint32_t h = 0; h < hosts; h++) {
        w->r[h] = new_readiness(h, hosts, 1);
        w->entry[h] = calloc(tensors, sizeof **w->entry);
        for (uint32_t i = 0; i < tensors; i++)
            w->order[h][i] = (uint8_t)i;
        for (uint32_t i = tensors; i-- > 1;) {
            uint32_t j = pick(i + 1);
            uint8_t t = w->order[h][i];
            w->order[h][i] = w->order[h][j];
            w->order[h][j] = t;
        }
    }
}

static void world_free(struct world *w)
{
    ck_assert_ptr_null(w->first);
    for (uint32_t h = 0; h < w->hosts; h++) {
        readiness_free(w->r[h]);
        for (uint32_t i = 0; i < w->entries[h]; i++)
            free(w->entry[h][i].data);
        free(w->entry[h]);
    }
}

/* Everything a host has to say, and the entries it may execute. */
static void drain(struct world *w, uint32_t host)
{
    uint32_t to;
    const void *message;
    size_t size;
    while (readiness_next_message(w->r[host], &to, &message, &size)) {
        struct packet *p = malloc(sizeof *p + size);
        *p = (struct packet){.from = host, .to = to, .size = size};
        memcpy(p->bytes, message, size);
        *(w->first ? &w->last->next : &w->first) = p;
        w->last = p;
        w->sent[host]++;
        ck_assert_uint_le(size, READINESS_MESSAGE_MAX);
    }
    while (w->entries[host] < w->tensors &&
           execution_list_next(readiness_list(w->r[host]), &w->entry[host][w->entries[host]]))
        w->entries[host]++;
}

/* Delivers some packet that is the first between its two hosts. */
static void deliver_one(struct world *w)
{
    struct packet **at = &w->first, *p;
    for (uint32_t skip = pick(8); skip > 0 && (*at)->next; skip--)
        at = &(*at)->next;
    for (struct packet **i = &w->first; i != at; i = &(*i)->next)
        if ((*i)->from == (*at)->from && (*i)->to == (*at)->to) {
            at = i;
            break;
        }
    p = *at;
    *at = p->next;
    if (w->last == p) {
        w->last = w->first;
        while (w->last && w->last->next)
            w->last = w->last->next;
    }
    struct err e = ERR_INIT;
    ck_assert_msg(readiness_receive(w->r[p->to], p->from, p->bytes, p->size, &e) == 0, "%s", e.text);
    drain(w, p->to);
    free(p);
}

static struct tensor_desc (*describe)(uint32_t host, uint32_t i);

static void announce_one(struct world *w, uint32_t host)
{
    struct err e = ERR_INIT;
    uint32_t i = w->order[host][w->announced[host]++];
    struct tensor_desc d = describe ? describe(host, i) : tensor(i);
    ck_assert_msg(say(w->r[host], host, &d, &e) == 0, "%s", e.text);
    if (pick(3) > 0)
        drain(w, host);
}

static void run(struct world *w)
{
    uint32_t left = w->hosts * w->tensors;
    while (left > 0 || w->first) {
        uint32_t host = pick(w->hosts);
        if (w->first && (left == 0 || pick(2)))
            deliver_one(w);
        else if (w->announced[host] < w->tensors) {
            announce_one(w, host);
            left--;
        }
        if (left == 0)
            for (uint32_t h = 0; h < w->hosts && !w->first; h++)
                drain(w, h);
    }
}

static const uint32_t worlds[] = {1, 2, 3, 17, 65, 66, 130, 300};

START_TEST(all_hosts_execute_the_same_list)
{
    static struct world w;
    seed();
    world_new(&w, worlds[_i], worlds[_i] > 100 ? 8 : TENSORS_MAX);
    run(&w);
    for (uint32_t h = 0; h < w.hosts; h++) {
        ck_assert_uint_eq(w.entries[h], w.tensors);
        ck_assert_uint_eq(readiness_ignored(w.r[h]), 0);
        for (uint32_t i = 0; i < w.tensors; i++) {
            const struct list_entry *entry = &w.entry[h][i];
            ck_assert_uint_eq(entry->number, i + 1);
            ck_assert_mem_eq(entry, &w.entry[0][i], offsetof(struct list_entry, data));
            ck_assert_int_eq(entry->data != NULL, readiness_data(w.r[h], &entry->desc.what) > 0);
            if (entry->data)
                check_result(entry, w.hosts);
            ck_assert_str_eq(entry->error, "");
            ck_assert_uint_eq(entry->desc.what.count, 100 + strtoul(entry->desc.name + 5, NULL, 10));
        }
    }
    world_free(&w);
}
END_TEST

/* Nothing is on the list before the last host has said so. */
START_TEST(one_missing_host_holds_it_back)
{
    static struct world w;
    seed();
    world_new(&w, 5, 1);
    uint32_t missing = pick(5);
    for (uint32_t h = 0; h < 5; h++)
        if (h != missing)
            announce_one(&w, h);
    for (int round = 0; round < 20; round++)
        for (uint32_t h = 0; h < 5; h++) {
            drain(&w, h);
            if (w.first)
                deliver_one(&w);
        }
    for (uint32_t h = 0; h < 5; h++)
        ck_assert_uint_eq(w.entries[h], 0);
    announce_one(&w, missing);
    drain(&w, missing);
    while (w.first)
        deliver_one(&w);
    for (uint32_t h = 0; h < 5; h++)
        ck_assert_uint_eq(w.entries[h], 1);
    world_free(&w);
}
END_TEST

/* A host that says 64 things at once says them in one message. */
START_TEST(messages_are_few)
{
    static struct world w;
    seed();
    world_new(&w, 3, TENSORS_MAX);
    struct err e = ERR_INIT;
    for (uint32_t i = 0; i < TENSORS_MAX; i++) {
        struct tensor_desc d = tensor(i);
        for (uint32_t h = 0; h < 3; h++)
            ck_assert_int_eq(say(w.r[h], h, &d, &e), 0);
    }
    for (uint32_t h = 3; h-- > 0;)
        drain(&w, h);
    while (w.first)
        deliver_one(&w);
    ck_assert_uint_eq(w.sent[1], 1);
    ck_assert_uint_le(w.sent[0], 4); /* two messages to each child at most: what was complete after the first
                                        report, and after the second */
    ck_assert_uint_eq(w.entries[2], TENSORS_MAX);
    world_free(&w);
}
END_TEST

static int mismatch;

static struct tensor_desc with_mismatch(uint32_t host, uint32_t i)
{
    struct tensor_desc d = tensor(i);
    if (i != 3)
        return d;
    if (mismatch == 4) /* properties of one kind */
        d.what.kind = SHM_BROADCAST;
    if (mismatch == 6) {
        d.what.kind = SHM_ALLGATHER;
        d.what.row = 1;
    }
    if (host != 2)
        return d;
    switch (mismatch) {
    case 0:
        d.what.kind = SHM_BROADCAST;
        break;
    case 1:
        d.what.dtype = HVD_INT64;
        break;
    case 2:
        d.what.op = HVD_MAX;
        break;
    case 3:
        d.what.count = 7;
        break;
    case 4:
        d.what.root = 9;
        break;
    case 5:
        d.what.set = -2;
        break;
    case 6:
        d.what.row = 103;
        break;
    case 7:
        d.what.prescale = 0.25;
        break;
    case 8:
        d.what.postscale = -3;
        break;
    case 9:
        d.what.compression = HVD_COMPRESSION_BFLOAT16;
        break;
    case 10:
        d.what.group = 4;
        break;
    case 11:
        d.what.root = 0x5eed; /* hvd_options.shape */
        break;
    }
    return d;
}

static const char *const mismatch_text[][2] = {{"called allreduce", "called broadcast"},
                                               {"element type float32", "element type int64"},
                                               {"operation sum", "operation max"},
                                               {"103 elements", "7 elements"},
                                               {"root rank 0", "root rank 9"},
                                               {"process set 0", "process set -2"},
                                               {"1 elements a row", "103 elements a row"},
                                               {"prescale 0", "prescale 0.25"},
                                               {"postscale 0", "postscale -3"},
                                               {"compression none", "compression bfloat16"},
                                               {"have one tensor", "a group of 4 tensors"},
                                               {"have a shape of its own", "have no shape of its own"}};

static struct tensor_desc broadcast_of(uint32_t host, uint32_t i)
{
    static const uint32_t root[] = {0, 263, 7, 150}; /* node0, node65 (below node1), node1, node37 */
    struct tensor_desc d = tensor(i);
    (void)host;
    d.what.kind = SHM_BROADCAST;
    d.what.root = root[i];
    return d;
}

START_TEST(a_mismatch_is_an_error_everywhere)
{
    static struct world w;
    seed();
    mismatch = _i;
    describe = with_mismatch;
    world_new(&w, 4, 6);
    run(&w);
    uint32_t errors = 0;
    for (uint32_t i = 0; i < w.tensors; i++) {
        const struct list_entry *entry = &w.entry[3][i];
        ck_assert_mem_eq(entry, &w.entry[1][i], offsetof(struct list_entry, data));
        ck_assert_int_eq(entry->data != NULL, !entry->error[0]);
        if (!entry->error[0])
            continue;
        errors++;
        ck_assert_str_eq(entry->desc.name, "layer3.weight");
        ck_assert_msg(strstr(entry->error, "'layer3.weight'") != NULL, "%s", entry->error);
        ck_assert_msg(strstr(entry->error, "ranks 8-11 (node2)") != NULL, "%s", entry->error);
        ck_assert_msg(strstr(entry->error, mismatch_text[_i][0]) != NULL, "%s", entry->error);
        ck_assert_msg(strstr(entry->error, mismatch_text[_i][1]) != NULL, "%s", entry->error);
    }
    ck_assert_uint_eq(errors, 1);
    world_free(&w);
}
END_TEST

/* Six tensors, as `how` describes them at each host. */
static void run_six(struct world *w, struct tensor_desc (*how)(uint32_t, uint32_t), uint32_t hosts)
{
    seed();
    describe = how;
    world_new(w, hosts, 6);
    run(w);
}

/* The number of the tensor in entry i of the execution lists. The entry is the same on all hosts. */
static uint32_t number_on_lists(const struct world *w, uint32_t i)
{
    const struct list_entry *entry = &w->entry[0][i];
    for (uint32_t h = 1; h < w->hosts; h++)
        ck_assert_mem_eq(entry, &w->entry[h][i], offsetof(struct list_entry, data));
    return (uint32_t)strtoul(entry->desc.name + 5, NULL, 10);
}

/* Hosts that have no elements, of tensors that are nowhere, on the devices of one host, on the host of one,
 * on both, and of another size. */
static struct tensor_desc of_few(uint32_t host, uint32_t i)
{
    static const uint32_t has[] = {UINT32_MAX, 0, 3, 2, 1, 1};
    struct tensor_desc d = tensor(i);
    d.what.count = i == 5 && host == 2 ? 7 : 0;
    d.what.device = host == has[i] ? i != 3 : i == 4 && host == 2 ? 0 : i == 5 && host == 2 ? 1 : OP_EITHER;
    return d;
}

START_TEST(who_has_nothing_goes_with_the_others)
{
    static struct world w;
    run_six(&w, of_few, _i ? 130 : 4);
    for (uint32_t i = 0; i < w.tensors; i++) {
        const struct list_entry *entry = &w.entry[0][i];
        uint32_t number = number_on_lists(&w, i);
        if (number < 4) {
            ck_assert_str_eq(entry->error, "");
            ck_assert_uint_eq(entry->desc.what.device, number == 1 || number == 2);
        } else if (number == 4) {
            ck_assert_ptr_nonnull(strstr(entry->error, "ranks 4-7 (node1) have in memory of a GPU, "
                                                       "ranks 8-11 (node2) have in memory of the host"));
        } else {
            ck_assert_ptr_nonnull(strstr(entry->error, "ranks 8-11 (node2) have 7 elements"));
            ck_assert_ptr_nonnull(strstr(entry->error, "have 0 elements"));
        }
    }
    world_free(&w);
}
END_TEST

/* Tensor 0: all say the same of their memory, 1: the last host says another thing, 2: one says nothing,
 * 3: one has no elements, 4: none is on a device, 5: one is not. */
static struct tensor_desc of_memory(uint32_t host, uint32_t i)
{
    struct tensor_desc d = tensor(i);
    d.what.count = i == 3 ? 0 : 100;
    d.what.device = i == 3 && host == 2 ? OP_EITHER : i != 4 && !(i == 5 && host == 2);
    if (d.what.device == 1)
        d.known = i == 1 && host == 3 ? 78 : i == 2 && host == 1 ? 0 : 77;
    return d;
}

START_TEST(memory_is_known_when_all_say_the_same)
{
    static struct world w;
    run_six(&w, of_memory, _i ? 130 : 4);
    for (uint32_t i = 0; i < w.tensors; i++) {
        const struct list_entry *entry = &w.entry[0][i];
        uint32_t number = number_on_lists(&w, i);
        ck_assert_int_eq(entry->error[0] == '\0', number != 5);
        if (number != 5)
            ck_assert_uint_eq(entry->desc.known, number == 0 ? 77 : 0);
    }
    world_free(&w);
}
END_TEST

/* A mismatch deep in the tree, and a longest name: the sentence still has the ranks. */
START_TEST(a_long_name_keeps_the_ranks)
{
    struct readiness *r = new_readiness(0, 2, 1), *child = new_readiness(1, 2, 1);
    struct tensor_desc d = tensor(0);
    struct list_entry entry;
    uint32_t to;
    const void *message;
    size_t size;
    memset(d.name, 'n', TENSOR_NAME_MAX);
    d.name[TENSOR_NAME_MAX] = '\0';
    ck_assert_int_eq(say(r, 0, &d, NULL), 0);
    d.what.count = 999;
    ck_assert_int_eq(say(child, 1, &d, NULL), 0);
    ck_assert(readiness_next_message(child, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(r, 1, message, size, NULL), 0);
    ck_assert(readiness_next_message(r, &to, &message, &size));
    ck_assert(execution_list_next(readiness_list(r), &entry));
    ck_assert_ptr_nonnull(
        strstr(entry.error, "ranks 0-3 (node0) have 100 elements, ranks 4-7 (node1) have 999 elements"));
    readiness_free(r);
    readiness_free(child);
}
END_TEST

START_TEST(a_local_error_travels)
{
    struct readiness *r = new_readiness(0, 2, 1), *child = new_readiness(1, 2, 1);
    struct tensor_desc d = tensor(0);
    struct list_entry entry;
    uint32_t to;
    const void *message;
    size_t size;
    ck_assert_int_eq(readiness_local(child, &d, "ranks 4 and 5 disagree", NULL, NULL), 0);
    ck_assert_int_eq(say(r, 0, &d, NULL), 0);
    ck_assert(readiness_next_message(child, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(r, 1, message, size, NULL), 0);
    ck_assert(readiness_next_message(r, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(child, 0, message, size, NULL), 0);
    ck_assert(execution_list_next(readiness_list(child), &entry));
    ck_assert_str_eq(entry.error, "ranks 4 and 5 disagree");
    ck_assert(execution_list_next(readiness_list(r), &entry));
    ck_assert_str_eq(entry.error, "ranks 4 and 5 disagree");
    readiness_free(r);
    readiness_free(child);
}
END_TEST

START_TEST(late_and_double_messages_are_ignored)
{
    struct readiness *r = new_readiness(0, 3, 2), *child = new_readiness(1, 3, 2),
                     *old = new_readiness(1, 3, 1);
    struct tensor_desc d = tensor(0);
    struct list_entry entry;
    uint8_t copy[READINESS_MESSAGE_MAX];
    uint32_t to;
    const void *message;
    size_t size;
    ck_assert_int_eq(say(old, 1, &d, NULL), 0);
    ck_assert(readiness_next_message(old, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(r, 1, message, size, NULL), 0); /* of epoch 1 */
    ck_assert_uint_eq(readiness_ignored(r), 1);
    ck_assert_int_eq(say(child, 1, &d, NULL), 0);
    ck_assert_int_eq(say(child, 1, &d, NULL),
                     0); /* a leaf's report has gone: it is the engine that knows better */
    ck_assert(readiness_next_message(child, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(r, 1, message, size, NULL), 0);
    ck_assert_uint_eq(readiness_ignored(r), 2);
    ck_assert_int_eq(say(r, 0, &d, NULL), 0);
    ck_assert_int_eq(say(r, 0, &d, NULL), -1); /* still waiting for host 2 */
    ck_assert(!execution_list_next(readiness_list(r), &entry));
    struct readiness *third = new_readiness(2, 3, 2);
    ck_assert_int_eq(say(third, 2, &d, NULL), 0);
    ck_assert(readiness_next_message(third, &to, &message, &size));
    ck_assert_int_eq(readiness_receive(r, 2, message, size, NULL), 0);
    ck_assert(readiness_next_message(r, &to, &message, &size));
    ck_assert(execution_list_next(readiness_list(r), &entry));
    free(entry.data);
    memcpy(copy, message, size);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(readiness_receive(child, 0, copy, size, NULL), 0);
    ck_assert(execution_list_next(readiness_list(child), &entry));
    free(entry.data);
    ck_assert(!execution_list_next(readiness_list(child), &entry));
    ck_assert_uint_eq(readiness_ignored(child), 1);
    readiness_free(r);
    readiness_free(child);
    readiness_free(old);
    readiness_free(third);
}
END_TEST

/* Bad messages change nothing, and are refused. */
START_TEST(malformed_messages_are_refused)
{
    struct readiness *r = new_readiness(0, 2, 1), *child = new_readiness(1, 2, 1);
    struct tensor_desc d = tensor(0);
    uint8_t copy[READINESS_MESSAGE_MAX + 1] = {0};
    uint32_t to;
    const void *message;
    size_t size;
    struct err e = ERR_INIT;
    ck_assert_int_eq(say(child, 1, &d, NULL), 0);
    ck_assert(readiness_next_message(child, &to, &message, &size));
    memcpy(copy, message, size);
    for (size_t n = 0; n < size; n++)
        ck_assert_int_eq(readiness_receive(r, 1, copy, n, &e), -1);
    ck_assert_int_eq(readiness_receive(r, 1, copy, size + 1, &e), -1);
    ck_assert_int_eq(readiness_receive(child, 0, copy, size, &e), -1); /* the parent is nobody's child */
    ck_assert_int_eq(readiness_receive(r, 0, copy, size, &e), -1);
    copy[0] = 9;
    ck_assert_int_eq(readiness_receive(r, 1, copy, size, &e), -1);
    copy[0] = READINESS_LIST;
    ck_assert_int_eq(readiness_receive(r, 1, copy, size, &e), -1); /* the root takes no list */
    copy[0] = READINESS_READY;
    size_t parts =
        size - 100 * sizeof(float) - 8; /* their number; before it the witness, after it the host */
    static const struct {
        int at;
        uint8_t wrong;
    } change[] = {{-4, 2}, {0, 0}, {0, 2}, {4, 0}, {4, 2}, {3, 0x40}};
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        uint8_t *byte = &copy[parts + (size_t)(long)change[i].at], was = *byte;
        *byte = change[i].wrong;
        ck_assert_int_eq(readiness_receive(r, 1, copy, size, &e), -1);
        *byte = was;
    }
    copy[11] = 0; /* no elements, which it must have */
    ck_assert_int_eq(readiness_receive(r, 1, copy, parts, &e), -1);
    copy[11] = 0x40;
    ck_assert_int_eq(readiness_receive(r, 1, copy, size, &e), 0);
    d.name[0] = '\0';
    ck_assert_int_eq(say(r, 0, &d, &e), -1);
    readiness_free(r);
    readiness_free(child);
}
END_TEST

START_TEST(a_gap_in_the_list_is_refused)
{
    struct tensor_cache *cache[] = {tensor_cache_new(9), tensor_cache_new(9)};
    struct execution_list *root = execution_list_new(1, cache[0], 0, NULL),
                          *other = execution_list_new(1, cache[1], 0, NULL);
    struct tensor_desc d = tensor(1);
    uint8_t first[2000], second[2000];
    struct list_entry entry;
    struct err e = ERR_INIT;
    ck_assert_int_eq(execution_list_append(root, &d, NULL, NULL, NULL), 0);
    long n = execution_list_encode(root, first, sizeof first, NULL);
    ck_assert_int_eq(execution_list_append(root, &d, "a sentence", NULL, NULL), 0);
    long m = execution_list_encode(root, second, sizeof second, NULL);
    ck_assert_int_gt(n, 0);
    ck_assert_int_gt(m, 0);
    ck_assert_int_eq(execution_list_encode(root, second, sizeof second, NULL), 0);
    ck_assert_int_eq(execution_list_receive(other, second, (size_t)m, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "jumps from 0 to 2"));
    ck_assert_int_eq(execution_list_receive(other, first, (size_t)n, &e), 1);
    ck_assert_int_eq(execution_list_receive(other, second, (size_t)m - 1, &e), -1);
    ck_assert_int_eq(execution_list_receive(other, second, (size_t)m, &e), 1);
    ck_assert(execution_list_next(other, &entry));
    ck_assert(execution_list_next(other, &entry));
    ck_assert_uint_eq(entry.number, 2);
    ck_assert_str_eq(entry.error, "a sentence");
    ck_assert(!execution_list_next(other, &entry));
    execution_list_free(root);
    execution_list_free(other);
    tensor_cache_free(cache[0]);
    tensor_cache_free(cache[1]);
}
END_TEST

/* A result in a list entry is copied to the outputs of all members. Only the kinds whose outputs are as long
 * as the result may have one. */
START_TEST(a_result_of_a_kind_that_has_none_is_refused)
{
    static const uint8_t kinds[] = {SHM_ALLREDUCE, SHM_BROADCAST, SHM_ALLGATHER, SHM_ALLTOALL,
                                    SHM_REDUCESCATTER};
    const uint32_t data[2] = {1, 2};
    for (size_t i = 0; i < sizeof kinds; i++) {
        struct tensor_cache *cache[] = {tensor_cache_new(9), tensor_cache_new(9)};
        struct execution_list *root = execution_list_new(1, cache[0], 0, NULL),
                              *other = execution_list_new(1, cache[1], 0, NULL);
        struct tensor_desc d = {.name = "a", .what = {.kind = kinds[i], .dtype = HVD_FLOAT32, .op = HVD_SUM}};
        uint8_t message[2000];
        struct err e = ERR_INIT;
        d.what.count = d.what.row = 2;
        ck_assert_int_eq(execution_list_append(root, &d, NULL, data, NULL), 0);
        long n = execution_list_encode(root, message, sizeof message, NULL);
        ck_assert_int_gt(n, 0);
        ck_assert_int_eq(execution_list_receive(other, message, (size_t)n, &e), i < 2 ? 1 : -1);
        execution_list_free(root);
        execution_list_free(other);
        tensor_cache_free(cache[0]);
        tensor_cache_free(cache[1]);
    }
}
END_TEST

/* One round of two hosts: the sizes of both messages; the entry is the same on both. */
static void round_of_two(struct readiness *r, struct readiness *child, const struct tensor_desc *d,
                         size_t *ready, size_t *list)
{
    struct list_entry entry = {0}, other = {0};
    struct err e = ERR_INIT;
    uint32_t to;
    const void *message;
    ck_assert_int_eq(say(r, 0, d, NULL), 0);
    ck_assert_int_eq(say(child, 1, d, NULL), 0);
    ck_assert(readiness_next_message(child, &to, &message, ready));
    ck_assert_msg(readiness_receive(r, 1, message, *ready, &e) == 0, "%s", e.text);
    ck_assert(readiness_next_message(r, &to, &message, list));
    ck_assert_msg(readiness_receive(child, 0, message, *list, &e) == 0, "%s", e.text);
    ck_assert(execution_list_next(readiness_list(r), &entry) &&
              execution_list_next(readiness_list(child), &other));
    ck_assert_mem_eq(&entry, &other, offsetof(struct list_entry, data));
    ck_assert_mem_eq(&entry.desc, d, sizeof *d);
    ck_assert_ptr_null(entry.data);
}

START_TEST(a_tensor_comes_back_as_a_number)
{
    struct readiness *r = new_readiness(0, 2, 1), *child = new_readiness(1, 2, 1);
    struct tensor_desc d = tensor(0);
    uint8_t copy[16] = {READINESS_LIST};
    size_t ready, list;
    struct err e = ERR_INIT;
    d.what.count = 1 << 20;
    for (int round = 0; round < 6; round++) {
        if (round == 3)
            d.what.count += 1; /* another description under the same name */
        round_of_two(r, child, &d, &ready, &list);
        bool in_full = round == 0 || round == 3;
        ck_assert_int_eq(ready > 12, in_full);
        ck_assert_int_eq(list > 20, in_full);
    }
    d.what.device = 1;
    for (int round = 0; round < 6; round++) {
        d.known = round < 3 ? 5 : 6; /* in other memory */
        round_of_two(r, child, &d, &ready, &list);
        bool in_full = round == 0 || round == 3;
        ck_assert_int_eq(ready > 12, in_full);
        ck_assert_int_eq(list > 20, in_full);
    }
    copy[0] = READINESS_READY, copy[2] = 1, copy[4] = 1, copy[8] = 1; /* number 1, of which there is none */
    ck_assert_int_eq(readiness_receive(r, 1, copy, 12, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "number 1"));
    readiness_free(r);
    readiness_free(child);
}
END_TEST

START_TEST(a_full_cache_keeps_what_it_has)
{
    struct tensor_cache *c = tensor_cache_new(100);
    struct tensor_desc d = tensor(0);
    for (uint32_t i = 0; i < 200; i++) {
        d = tensor(i);
        ck_assert_int_eq(tensor_cache_put(c, &d), 0);
    }
    for (uint32_t i = 0; i < 200; i++) {
        d = tensor(i);
        ck_assert_uint_eq(tensor_cache_find(c, &d), i < 100 ? i : TENSOR_CACHE_NONE);
        d.what.op = HVD_MAX;
        ck_assert_uint_eq(tensor_cache_find(c, &d), TENSOR_CACHE_NONE);
        d.what.op = HVD_SUM;
        d.what.set = 3; /* another set's tensor of this name */
        ck_assert_uint_eq(tensor_cache_find(c, &d), TENSOR_CACHE_NONE);
    }
    ck_assert_ptr_null(tensor_cache_get(c, 100));
    tensor_cache_free(c);
    c = tensor_cache_new(0);
    ck_assert_int_eq(tensor_cache_put(c, &d), 0);
    ck_assert_uint_eq(tensor_cache_find(c, &d), TENSOR_CACHE_NONE);
    tensor_cache_free(c);
}
END_TEST

/* Only the host of a broadcast's root adds elements, wherever it is in the tree. */
START_TEST(a_small_broadcast_comes_from_its_root)
{
    static struct world w;
    seed();
    describe = broadcast_of;
    world_new(&w, 66, 4);
    run(&w);
    for (uint32_t h = 0; h < w.hosts; h++)
        for (uint32_t i = 0; i < w.tensors; i++) {
            const struct list_entry *entry = &w.entry[h][i];
            float got;
            ck_assert_ptr_nonnull(entry->data);
            memcpy(&got, entry->data, sizeof got);
            ck_assert(got == element(entry->desc.what.root / 4, entry->desc.what.count, 0));
        }
    world_free(&w);
}
END_TEST

/* ---- two hosts ----------------------------------------------------------------------------------------- */

#define PAIR_TENSORS 6
#define PAIR_ROUNDS  8 /* operations of each */

struct pair {
    struct world w;
    uint32_t seen[2];                                     /* entries that were looked at */
    uint32_t said[2][PAIR_TENSORS], got[2][PAIR_TENSORS]; /* operations */
    const struct list_entry *result[2][PAIR_TENSORS][PAIR_ROUNDS];
    uint8_t what[PAIR_TENSORS][PAIR_ROUNDS];
};

/* The operation that a host asks for: mostly a small one, at times a large one, at times one that differs
 * from the other host's. */
static struct tensor_desc of_pair(const struct pair *p, uint32_t host, uint32_t i, uint32_t round)
{
    struct tensor_desc d = tensor(i);
    uint8_t what = p->what[i][round];

    if (i == PAIR_TENSORS - 1 && what >= 6) /* most of the time */
        d.what = (struct tensor_op){.kind = SHM_BARRIER, .prescale = 1, .postscale = 1};
    if (what == 0 || (what == 1 && host == 0) || (what == 2 && host == 1))
        d.what.count = 5000; /* too many to come along */
    else if (what == 3 || (what == 4 && host == 0))
        d.what.count = 50;
    else if (what == 5 && host == 1)
        d.what.op = HVD_MAX;
    return d;
}

static void pair_look(struct pair *p, uint32_t host)
{
    drain(&p->w, host);
    for (; p->seen[host] < p->w.entries[host]; p->seen[host]++) {
        const struct list_entry *entry = &p->w.entry[host][p->seen[host]];
        uint32_t i = (uint32_t)strtoul(entry->desc.name + strlen("layer"), NULL, 10);
        uint32_t round = p->got[host][i]++;

        ck_assert_uint_lt(round, p->said[host][i]);
        p->result[host][i][round] = entry;
        if (entry->data)
            check_result(entry, 2);
    }
}

static void pair_say(struct pair *p, uint32_t host, uint32_t i)
{
    struct err e = ERR_INIT;
    struct tensor_desc d;

    if (p->said[host][i] > p->got[host][i] || p->said[host][i] == PAIR_ROUNDS)
        return;
    d = of_pair(p, host, i, p->said[host][i]++);
    ck_assert_msg(say(p->w.r[host], host, &d, &e) == 0, "%s", e.text);
    if (pick(3) > 0)
        pair_look(p, host);
}

/* Both hosts get the same of each operation, in whatever order messages and ranks come. */
START_TEST(two_hosts_agree_without_a_list)
{
    uint32_t direct = 0, listed = 0, wrong = 0;

    seed();
    for (int turn = 0; turn < 200; turn++) {
        struct pair p = {0};

        world_new(&p.w, 2, PAIR_TENSORS * PAIR_ROUNDS);
        for (uint32_t i = 0; i < PAIR_TENSORS * PAIR_ROUNDS; i++)
            p.what[i / PAIR_ROUNDS][i % PAIR_ROUNDS] = (uint8_t)pick(16);
        while (p.seen[0] + p.seen[1] < 2 * PAIR_TENSORS * PAIR_ROUNDS) {
            if (p.w.first && pick(2))
                deliver_one(&p.w);
            else
                pair_say(&p, pick(2), pick(PAIR_TENSORS));
            pair_look(&p, pick(2));
        }
        for (uint32_t i = 0; i < PAIR_TENSORS * PAIR_ROUNDS; i++) {
            const struct list_entry *a = p.result[0][i / PAIR_ROUNDS][i % PAIR_ROUNDS];
            const struct list_entry *b = p.result[1][i / PAIR_ROUNDS][i % PAIR_ROUNDS];
            ck_assert_uint_eq(a->number, b->number);
            ck_assert_str_eq(a->error, b->error);
            ck_assert_int_eq(a->data != NULL, b->data != NULL);
            direct += a->number == 0;
            listed += a->number != 0 && !a->error[0];
            wrong += a->error[0] != 0;
        }
        while (p.w.first)
            deliver_one(&p.w);
        world_free(&p.w);
    }
    ck_assert_uint_gt(direct, 1000);
    ck_assert_uint_gt(listed, 1000);
    ck_assert_uint_gt(wrong, 1000);
}
END_TEST

/* The second time a small tensor, and a barrier, goes one way only, and each host sends one message. */
START_TEST(a_known_small_tensor_goes_one_way)
{
    struct world w;
    struct tensor_desc d = tensor(0);
    struct err e = ERR_INIT;

    if (_i == 1)
        d.what = (struct tensor_op){.kind = SHM_BARRIER, .prescale = 1, .postscale = 1};
    world_new(&w, 2, 2);
    for (uint32_t round = 0; round < 2; round++) {
        w.sent[0] = w.sent[1] = 0;
        for (uint32_t h = 0; h < 2; h++) {
            ck_assert_int_eq(say(w.r[h], h, &d, &e), 0);
            drain(&w, h);
        }
        ck_assert_uint_eq(w.sent[0], round);
        while (w.first)
            deliver_one(&w);
        ck_assert_uint_eq(w.sent[0], 1);
        ck_assert_uint_eq(w.sent[1], 1);
        for (uint32_t h = 0; h < 2; h++) {
            ck_assert_uint_eq(w.entries[h], round + 1);
            ck_assert_uint_eq(w.entry[h][round].number, round == 0);
            if (_i == 0)
                check_result(&w.entry[h][round], 2);
            else
                ck_assert_ptr_null(w.entry[h][round].data);
        }
    }
    world_free(&w);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("readiness");
    TCase *c = tcase_create("readiness");
    case_computes(c);
    tcase_add_loop_test(c, all_hosts_execute_the_same_list, 0, sizeof worlds / sizeof *worlds);
    tcase_add_test(c, one_missing_host_holds_it_back);
    tcase_add_test(c, messages_are_few);
    tcase_add_loop_test(c, a_mismatch_is_an_error_everywhere, 0,
                        sizeof mismatch_text / sizeof *mismatch_text);
    tcase_add_loop_test(c, who_has_nothing_goes_with_the_others, 0, 2);
    tcase_add_loop_test(c, memory_is_known_when_all_say_the_same, 0, 2);
    tcase_add_test(c, a_long_name_keeps_the_ranks);
    tcase_add_test(c, a_local_error_travels);
    tcase_add_test(c, late_and_double_messages_are_ignored);
    tcase_add_test(c, malformed_messages_are_refused);
    tcase_add_test(c, a_gap_in_the_list_is_refused);
    tcase_add_test(c, a_result_of_a_kind_that_has_none_is_refused);
    tcase_add_test(c, a_tensor_comes_back_as_a_number);
    tcase_add_test(c, a_full_cache_keeps_what_it_has);
    tcase_add_test(c, a_small_broadcast_comes_from_its_root);
    tcase_add_test(c, two_hosts_agree_without_a_list);
    tcase_add_loop_test(c, a_known_small_tensor_goes_one_way, 0, 2);
    suite_add_tcase(s, c);
    SRunner *runner = srunner_create(s);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
