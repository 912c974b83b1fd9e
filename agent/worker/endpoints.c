/* Two variables from one walk over the ranks:
 *
 *   PADDLE_TRAINER_ENDPOINTS=10.0.0.1:9001,10.0.0.1:9002,[fd00::2]:9001
 *   TF_CONFIG={"cluster":{"worker":["10.0.0.1:9001",...]},"task":{"type":"worker","index":0}}
 *
 * Addresses are numeric, which is checked here, so nothing in them needs quoting. */
#include "agent/worker/endpoints.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/protocol/contracts.h"
#include "common/protocol/host_ranks.h"

#define VARIABLE_MAX 131071 /* bytes of one that execve takes, in pages of 4 KiB (MAX_ARG_STRLEN) */
#define TF_BEFORE    "TF_CONFIG={\"cluster\":{\"worker\":["
#define TF_AFTER     "]},\"task\":{\"type\":\"worker\",\"index\":"
#define TF_END       "}}"
#define PADDLE       "PADDLE_TRAINER_ENDPOINTS="
#define INDEX_MAX    sizeof "4294967295"

static int check_host(const Hvd__HostRanks *host, struct err *e)
{
    struct in6_addr address;
    if (inet_pton(strchr(host->address, ':') ? AF_INET6 : AF_INET, host->address, &address) != 1)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has no address for %s", host->name);
    if (host->n_worker_port != host->ranks)
        return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has %zu ports for the %u ranks on %s",
                       host->n_worker_port, host->ranks, host->name);
    for (size_t i = 0; i < host->n_worker_port; i++)
        if (host->worker_port[i] == 0 || host->worker_port[i] > UINT16_MAX)
            return err_set(e, ERR_PROTOCOL, "the launcher's Spawn has port %u on %s", host->worker_port[i],
                           host->name);
    return 0;
}

/* endpoint[rank], each of ENDPOINT_MAX bytes. */
static int collect_endpoints(char (*endpoint)[ENDPOINT_MAX], const Hvd__Spawn *spawn, struct err *e)
{
    for (size_t i = 0; i < spawn->n_host; i++) {
        const Hvd__HostRanks *host = spawn->host[i];
        if (check_host(host, e) < 0)
            return -1;
        bool v6 = strchr(host->address, ':') != NULL;
        for (uint32_t k = 0; k < host->ranks; k++)
            snprintf(endpoint[host_rank(host, k)], ENDPOINT_MAX, v6 ? "[%s]:%u" : "%s:%u", host->address,
                     host->worker_port[k]);
    }
    return 0;
}

static char *append_text(char *at, const char *text)
{
    size_t len = strlen(text);
    memcpy(at, text, len + 1);
    return at + len;
}

static void write_both(struct endpoints *n, char (*endpoint)[ENDPOINT_MAX], uint32_t size)
{
    char *list = append_text(n->list, PADDLE), *config = append_text(n->config, TF_BEFORE);
    for (uint32_t i = 0; i < size; i++) {
        list = append_text(append_text(list, i ? "," : ""), endpoint[i]);
        config = append_text(append_text(append_text(config, i ? ",\"" : "\""), endpoint[i]), "\"");
    }
    config = append_text(config, TF_AFTER);
    n->index_at = (size_t)(config - n->config);
}

int endpoints_init(struct endpoints *n, const Hvd__Spawn *spawn, struct err *e)
{
    size_t room = sizeof TF_BEFORE TF_AFTER TF_END + INDEX_MAX;
    *n = (struct endpoints){0};
    if (!(spawn->contracts & CONTRACTS_ENDPOINTS))
        return 0;
    char(*endpoint)[ENDPOINT_MAX] = calloc(spawn->size, sizeof *endpoint);
    if (!endpoint)
        return err_set(e, ERR_MEMORY, "no memory for the addresses of %u ranks", spawn->size);
    if (collect_endpoints(endpoint, spawn, e) < 0)
        goto failed;
    for (uint32_t i = 0; i < spawn->size; i++)
        room += strlen(endpoint[i]) + sizeof "\"\"," - 1;
    if (room > VARIABLE_MAX) {
        err_set(
            e, ERR_USAGE,
            "the addresses of %u ranks are %zu bytes, and a variable may have %d: leave tf and paddle out "
            "of --rendezvous",
            spawn->size, room, VARIABLE_MAX);
        goto failed;
    }
    n->list = malloc(room);
    n->config = malloc(room);
    if (!n->list || !n->config) {
        err_set(e, ERR_MEMORY, "no memory for the addresses of %u ranks", spawn->size);
        goto failed;
    }
    write_both(n, endpoint, spawn->size);
    free(endpoint);
    return 0;
failed:
    free(endpoint);
    endpoints_free(n);
    return -1;
}

void endpoints_free(struct endpoints *n)
{
    free(n->list);
    free(n->config);
    *n = (struct endpoints){0};
}

char *endpoints_tf_config(struct endpoints *n, uint32_t rank)
{
    snprintf(n->config + n->index_at, INDEX_MAX + sizeof TF_END, "%u" TF_END, rank);
    return n->config;
}

bool endpoints_entry(const char *list, uint32_t rank, char text[ENDPOINT_MAX])
{
    for (; rank > 0 && *list; rank--) {
        list += strcspn(list, ",");
        list += *list == ',';
    }
    size_t len = strcspn(list, ",");
    if (rank > 0 || len == 0 || len >= ENDPOINT_MAX)
        return false;
    memcpy(text, list, len);
    text[len] = '\0';
    return true;
}
