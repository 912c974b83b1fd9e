/* Published names. A hash of the name chooses the host that keeps the name; other hosts ask that host. */
#include "agent/rendezvous/pmi1/pmi1.h"

#include <stdlib.h>
#include <string.h>

static const char *answer_of(enum pmi1_request request)
{
    return request == PMI1_ASK_PUBLISH     ? "publish_result"
           : request == PMI1_ASK_UNPUBLISH ? "unpublish_result"
                                           : "lookup_result";
}

static uint32_t keeper_of(const struct pmi1 *p, const char *service)
{
    uint32_t h = 5381;
    for (; *service; service++)
        h = h * 33 + (uint8_t)*service;
    return h % (uint32_t)p->r->spawn->n_host;
}

/* The store keeps an unpublished name with an empty value. */
int pmi1_names_serve(struct pmi1 *p, enum pmi1_request request, const char *service, const char *port,
                     const char **found, struct err *e)
{
    const char *now = pmi1_store_get(&p->names, service);
    bool known = now && *now;
    *found = NULL;
    if (request == PMI1_ASK_PUBLISH)
        return known ? err_set(e, ERR_PROTOCOL, "this name is published already")
                     : pmi1_store_put(&p->names, service, port, e);
    if (!known)
        return err_set(e, ERR_NOT_FOUND, "no such name is published");
    if (request == PMI1_ASK_UNPUBLISH)
        return pmi1_store_put(&p->names, service, "", e);
    if (request != PMI1_ASK_LOOKUP)
        return err_set(e, ERR_PROTOCOL, "unknown request");
    *found = now;
    return 0;
}

/* Names the client by its rank, because the client may be gone when the answer comes. */
struct question {
    struct pmi1 *p;
    uint32_t rank;
    enum pmi1_request request;
};

static void answer_client(struct pmi1_client *c, enum pmi1_request request, const struct err *why,
                          const char *port, size_t len)
{
    if (why)
        pmi1_refuse(c, answer_of(request), why->text);
    else if (request == PMI1_ASK_LOOKUP)
        pmi1_answer(c, "cmd=lookup_result rc=0 info=ok port=%.*s", (int)len, port);
    else
        pmi1_answer(c, "cmd=%s rc=0 info=ok", answer_of(request));
}

static void on_answer(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct question *q = ctx;
    struct pmi1_client *c = pmi1_client_of(q->p, q->rank);
    if (c && c->asking == q) {
        c->asking = NULL;
        answer_client(c, q->request, why, (const char *)data, len);
    }
    free(q);
}

static void ask_keeper(struct pmi1_client *c, enum pmi1_request request, uint32_t host, const char *service,
                       const char *port)
{
    uint8_t bytes[1 + PMI1_RECORD_MAX];
    struct writer w = writer_of(bytes, sizeof bytes);
    struct question *q = malloc(sizeof *q);
    struct err e = ERR_INIT;
    if (!q) {
        err_set(&e, ERR_MEMORY, "no memory for a question");
        answer_client(c, request, &e, NULL, 0);
        return;
    }
    *q = (struct question){c->p, c->rank, request};
    c->asking = q;
    write_u8(&w, (uint8_t)request);
    pmi1_write_record(&w, PMI1_PUT, service, port);
    (void)tree_request(c->p->r->tree, TREE_PMI1, host, bytes, sizeof bytes - w.left, on_answer, q);
}

static void handle_name(struct pmi1_client *c, const struct pmi1_message *m, enum pmi1_request request)
{
    const char *service = pmi1_get(m, "service"), *port = pmi1_get(m, "port"), *found;
    struct err e = ERR_INIT;
    if (!port)
        port = "";
    if (c->asking)
        err_set(&e, ERR_PROTOCOL, "the rank still waits for its last answer");
    else if (!service || !*service || (request == PMI1_ASK_PUBLISH && !*port))
        err_set(&e, ERR_PROTOCOL, "no service or no port");
    else if (strlen(service) >= PMI1_KEY_MAX || strlen(port) >= PMI1_VALUE_MAX)
        err_set(&e, ERR_PROTOCOL, "the name or the port is too long");
    uint32_t host = e.code ? 0 : keeper_of(c->p, service);
    if (!e.code && host != c->p->r->spawn->host_index) {
        ask_keeper(c, request, host, service, port);
        return;
    }
    if (!e.code)
        (void)pmi1_names_serve(c->p, request, service, port, &found, &e);
    answer_client(c, request, e.code ? &e : NULL, e.code ? NULL : found,
                  !e.code && found ? strlen(found) : 0);
}

void pmi1_publish(struct pmi1_client *c, const struct pmi1_message *m)
{
    handle_name(c, m, PMI1_ASK_PUBLISH);
}

void pmi1_unpublish(struct pmi1_client *c, const struct pmi1_message *m)
{
    handle_name(c, m, PMI1_ASK_UNPUBLISH);
}

void pmi1_lookup(struct pmi1_client *c, const struct pmi1_message *m)
{
    handle_name(c, m, PMI1_ASK_LOOKUP);
}
