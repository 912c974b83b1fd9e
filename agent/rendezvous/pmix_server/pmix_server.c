/* Start: the library is initialized (some 20 ms), learns of the job, and is asked for its clients'
 * environment. There is no end: the process ends, and the library's directory is removed with the job's.
 * Requests and news of other hosts, and the deaths of ranks, go from here to the files that serve them. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/protocol/host_ranks.h"
#include "common/protocol/spawn_programs.h"

/* ---- the job, in the library's words ------------------------------------------------------------------- */

#define INFOS_MAX 20 /* of the job, but for those of programs and ranks */

struct infos {
    pmix_info_t *item;
    size_t count, capacity;
};

static struct infos infos_of(size_t capacity)
{
    struct infos l = {.capacity = capacity};
    PMIX_INFO_CREATE(l.item, capacity);
    l.capacity = l.item ? capacity : 0;
    return l;
}

static void put_info(struct infos *l, const char *key, const void *data, pmix_data_type_t type)
{
    if (l->count < l->capacity)
        PMIX_INFO_LOAD(&l->item[l->count++], key, data, type);
}

static void clear_infos(struct infos *l)
{
    PMIX_INFO_FREE(l->item, l->capacity);
    *l = (struct infos){.count = 0};
}

/* A value that is a list itself; takes the memory of `value`. */
static void put_infos(struct infos *l, const char *key, struct infos *value)
{
    pmix_data_array_t *array = calloc(1, sizeof *array);
    if (l->count == l->capacity || !array) {
        free(array);
        clear_infos(value);
        return;
    }
    *array = (pmix_data_array_t){.type = PMIX_INFO, .size = value->count, .array = value->item};
    PMIX_LOAD_KEY(l->item[l->count].key, key);
    l->item[l->count].value.type = PMIX_DATA_ARRAY;
    l->item[l->count++].value.data.darray = array;
}

static void put_program(struct infos *l, const struct rendezvous *r, uint32_t i)
{
    struct spawn_program p = spawn_program_get(r->spawn, i);
    struct infos own = infos_of(3);
    pmix_rank_t leader = p.first;
    put_info(&own, PMIX_APPNUM, &i, PMIX_UINT32);
    put_info(&own, PMIX_APP_SIZE, &p.ranks, PMIX_UINT32);
    put_info(&own, PMIX_APPLDR, &leader, PMIX_PROC_RANK);
    put_infos(l, PMIX_APP_INFO_ARRAY, &own);
}

/* With this array the library ignores the maps for the rank. */
static void put_rank(struct infos *l, const struct rendezvous *r, uint32_t host, uint32_t local)
{
    struct infos own = infos_of(10);
    char name[256], *locality = NULL;
    pmix_rank_t rank = host_rank(r->spawn->host[host], local);
    uint32_t program = (uint32_t)spawn_program_of(r->spawn, rank);
    pmix_rank_t in_program = rank - spawn_program_get(r->spawn, program).first;
    uint16_t short_local = (uint16_t)local;
    pmix_node_name(r, host, name, sizeof name);
    put_info(&own, PMIX_RANK, &rank, PMIX_PROC_RANK);
    put_info(&own, PMIX_APPNUM, &program, PMIX_UINT32);
    put_info(&own, PMIX_APP_RANK, &in_program, PMIX_PROC_RANK);
    put_info(&own, PMIX_HOSTNAME, name, PMIX_STRING);
    put_info(&own, PMIX_NODEID, &host, PMIX_UINT32);
    put_info(&own, PMIX_LOCAL_RANK, &short_local, PMIX_UINT16);
    put_info(&own, PMIX_NODE_RANK, &short_local, PMIX_UINT16);
    put_info(&own, PMIX_GLOBAL_RANK, &rank, PMIX_PROC_RANK);
    const char *cpus = host == r->spawn->host_index && r->values.bound ? r->values.bound[local] : "";
    if (*cpus)
        put_info(&own, PMIX_CPUSET, cpus, PMIX_STRING);
    if (*cpus && (locality = pmix_topology_locality(cpus)) != NULL)
        put_info(&own, PMIX_LOCALITY_STRING, locality, PMIX_STRING);
    put_infos(l, PMIX_PROC_INFO_ARRAY, &own);
    free(locality);
}

/* With one program the maps are enough for ranks of other hosts. */
static void put_programs(struct infos *l, const struct rendezvous *r)
{
    bool several = spawn_programs(r->spawn) > 1;
    for (uint32_t i = 0; i < spawn_programs(r->spawn); i++)
        put_program(l, r, i);
    for (uint32_t i = 0; i < r->spawn->n_host; i++)
        for (uint32_t k = 0; (several || i == r->spawn->host_index) && k < r->spawn->host[i]->ranks; k++)
            put_rank(l, r, i, k);
}

/* In the words of mpirun's server. */
static void put_placement(struct infos *l, const struct rendezvous *r)
{
    static const char *const map[] = {"BYSLOT", "BYNODE", "BYNUMA", "BYSOCKET", "BYCORE"};
    static const char *const bind[] = {"NONE", "CORE", "NUMA", "SOCKET"};
    const Hvd__Binding *b = r->spawn->binding;
    uint32_t none = 0, here = (uint32_t)r->spawn->n_worker;
    struct infos node = infos_of(3);
    char name[256];
    pmix_node_name(r, r->spawn->host_index, name, sizeof name);
    put_info(&node, PMIX_NODEID, &r->spawn->host_index, PMIX_UINT32);
    put_info(&node, PMIX_HOSTNAME, name, PMIX_STRING);
    put_info(&node, PMIX_NODE_SIZE, &here, PMIX_UINT32);
    put_infos(l, PMIX_NODE_INFO_ARRAY, &node);
    put_info(l, PMIX_NPROC_OFFSET, &none, PMIX_UINT32);
    put_info(l, PMIX_RANKBY, "SLOT", PMIX_STRING);
    put_info(l, PMIX_MAPBY, map[b && b->map_by < sizeof map / sizeof *map ? b->map_by : 0], PMIX_STRING);
    put_info(l, PMIX_BINDTO, bind[b && b->bind_to < sizeof bind / sizeof *bind ? b->bind_to : 0],
             PMIX_STRING);
}

/* "node1,node2" and "0,1;2,3", as the library's regular expressions. */
static int make_maps(const struct rendezvous *r, char **nodes, char **ranks)
{
    size_t size = 1, used = 0;
    char name[256];
    for (size_t i = 0; i < r->spawn->n_host; i++)
        size += sizeof name + (size_t)r->spawn->host[i]->ranks * 11 + 2;
    char *text = calloc(1, size);
    if (!text)
        return -1;
    for (uint32_t i = 0; i < r->spawn->n_host; i++) {
        pmix_node_name(r, i, name, sizeof name);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "", name);
    }
    int rc = PMIx_generate_regex(text, nodes) == PMIX_SUCCESS ? 0 : -1;
    used = 0;
    for (uint32_t i = 0; i < r->spawn->n_host; i++) {
        const Hvd__HostRanks *h = r->spawn->host[i];
        for (uint32_t k = 0; k < h->ranks; k++)
            used += (size_t)snprintf(text + used, size - used, "%s%u",
                                     k   ? ","
                                     : i ? ";"
                                         : "",
                                     host_rank(h, k));
    }
    if (rc == 0 && PMIx_generate_ppn(text, ranks) != PMIX_SUCCESS)
        rc = -1;
    free(text);
    return rc;
}

static pmix_status_t register_job(const struct rendezvous *r)
{
    size_t programs = spawn_programs(r->spawn);
    struct infos l = infos_of(INFOS_MAX + programs + (programs > 1 ? r->spawn->size : r->spawn->n_worker));
    char *nodes = NULL, *ranks = NULL, directory[PATH_MAX];
    uint32_t size = r->spawn->size, apps = (uint32_t)programs, local = (uint32_t)r->spawn->n_worker;
    if (!l.item || make_maps(r, &nodes, &ranks) < 0) {
        clear_infos(&l);
        return PMIX_ERR_NOMEM;
    }
    pmix_server_directory(r, directory, sizeof directory);
    put_info(&l, PMIX_NODE_MAP, nodes, PMIX_STRING);
    put_info(&l, PMIX_PROC_MAP, ranks, PMIX_STRING);
    put_info(&l, PMIX_JOB_SIZE, &size, PMIX_UINT32);
    put_info(&l, PMIX_UNIV_SIZE, &size, PMIX_UINT32);
    put_info(&l, PMIX_MAX_PROCS, &size, PMIX_UINT32);
    put_info(&l, PMIX_JOB_NUM_APPS, &apps, PMIX_UINT32);
    put_info(&l, PMIX_LOCAL_SIZE, &local, PMIX_UINT32);
    put_info(&l, PMIX_JOBID, pmix_server.space, PMIX_STRING);
    put_info(&l, PMIX_TMPDIR, directory, PMIX_STRING);
    put_info(&l, PMIX_NSDIR, directory, PMIX_STRING);
    if (r->values.crowded)
        put_info(&l, PMIX_NODE_OVERSUBSCRIBED, &r->values.crowded, PMIX_BOOL);
    put_placement(&l, r);
    put_programs(&l, r);
    pmix_status_t rc =
        PMIx_server_register_nspace(pmix_server.space, (int)r->spawn->n_worker, l.item, l.count, NULL, NULL);
    clear_infos(&l);
    free(nodes);
    free(ranks);
    return rc;
}

static pmix_status_t register_clients(const struct rendezvous *r)
{
    for (size_t i = 0; i < r->spawn->n_worker; i++) {
        pmix_proc_t proc;
        PMIX_LOAD_PROCID(&proc, pmix_server.space, r->spawn->worker[i]->rank);
        pmix_status_t rc = PMIx_server_register_client(&proc, geteuid(), getegid(), NULL, NULL, NULL);
        if (rc != PMIX_SUCCESS && rc != PMIX_OPERATION_SUCCEEDED)
            return rc;
    }
    return PMIX_SUCCESS;
}

static pmix_status_t init_library(const struct rendezvous *r)
{
    struct infos l = infos_of(INFOS_MAX);
    char name[256], directory[PATH_MAX];
    pmix_rank_t rank = r->spawn->host_index;
    bool share = true;
    pmix_server_name(r, name, sizeof name);
    put_info(&l, PMIX_SERVER_NSPACE, name, PMIX_STRING);
    put_info(&l, PMIX_SERVER_RANK, &rank, PMIX_PROC_RANK);
    pmix_server_directory(r, directory, sizeof directory);
    put_info(&l, PMIX_SERVER_TMPDIR, directory, PMIX_STRING);
    put_info(&l, PMIX_SYSTEM_TMPDIR, directory, PMIX_STRING);
    pmix_node_name(r, r->spawn->host_index, name, sizeof name);
    put_info(&l, PMIX_HOSTNAME, name, PMIX_STRING);
    put_info(&l, PMIX_SERVER_SHARE_TOPOLOGY, &share, PMIX_BOOL);
    size_t ours = l.count;
    if (!l.item)
        return PMIX_ERR_NOMEM;
    if (pmix_server.topology.topology) { /* not to be cleared with the list */
        PMIX_LOAD_KEY(l.item[ours].key, PMIX_TOPOLOGY2);
        l.item[ours].value.type = PMIX_TOPO;
        l.item[ours].value.data.topo = &pmix_server.topology;
        l.count++;
    }
    pmix_status_t rc = PMIx_server_init(&pmix_upcalls, l.item, l.count);
    if (l.count > ours)
        l.item[ours].value = (pmix_value_t){.type = PMIX_UNDEF};
    clear_infos(&l);
    return rc;
}

/* ---- start --------------------------------------------------------------------------------------------- */

static uint16_t port_of(char *const *environment)
{
    for (size_t i = 0; environment && environment[i]; i++) {
        const char *port = strrchr(environment[i], ':');
        if (strncmp(environment[i], "PMIX_SERVER_URI", strlen("PMIX_SERVER_URI")) == 0 && port)
            return (uint16_t)strtoul(port + 1, NULL, 10);
    }
    return 0;
}

static int start_library(struct rendezvous *r, struct pmix_listening *out, struct err *e)
{
    pmix_proc_t proc;
    const char *what = "PMIx_server_init";
    pmix_topology_find(&pmix_server.topology);
    pmix_status_t rc = init_library(r);
    if (rc == PMIX_SUCCESS) {
        what = "registering the job with PMIx";
        rc = register_job(r);
    }
    if (rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED)
        rc = register_clients(r);
    PMIX_LOAD_PROCID(&proc, pmix_server.space, r->spawn->worker[0]->rank);
    if (rc == PMIX_SUCCESS)
        rc = PMIx_server_setup_fork(&proc, &out->environment);
    out->port = port_of(out->environment);
    if (rc != PMIX_SUCCESS)
        return err_set(e, ERR_SYSTEM, "%s failed: %s", what, PMIx_Error_string(rc));
    if (!out->port)
        return err_set(e, ERR_SYSTEM, "the PMIx library listens at no TCP port");
    return 0;
}

/* The library takes settings from the environment, and the session may itself be a client of another
 * server. */
static void forget_other_servers(void)
{
    extern char **environ;
    for (size_t i = 0; environ && environ[i];) {
        char name[128];
        size_t len = strcspn(environ[i], "=");
        if (strncmp(environ[i], "PMIX_", 5) != 0 || strncmp(environ[i], "PMIX_MCA_", 9) == 0 ||
            len >= sizeof name) {
            i++;
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)len, environ[i]);
        if (unsetenv(name) < 0)
            i++;
    }
}

int pmix_server_start(struct rendezvous *r, bool before_workers, struct pmix_listening *out, struct err *e)
{
    char directory[PATH_MAX];
    pmix_server.r = r;
    pmix_server.serve = pmix_server_asked;
    PMIX_LOAD_NSPACE(pmix_server.space, r->spawn->namespace_);
    forget_other_servers();
    /* Clients look for the library's shared-memory stores before they connect. */
    if (!before_workers)
        setenv("PMIX_MCA_gds", "hash", 1);
    pmix_server_directory(r, directory, sizeof directory);
    pmix_topology_without_plugins(directory);
    if (upcall_queue_open(&pmix_server.upcalls, r->loop, e) < 0)
        return -1;
    return start_library(r, out, e);
}

/* ---- while it runs ------------------------------------------------------------------------------------- */

void pmix_server_rank_ended(uint32_t rank)
{
    pmix_collective_rank_ended(rank);
    pmix_modex_rank_ended(rank);
    pmix_store_rank_ended(rank);
    pmix_events_rank_ended(rank);
}

void pmix_server_asked(struct pmix_asked asked, const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    switch (len > 0 ? data[0] : UINT8_MAX) {
    case PMIX_MESSAGE_MODEX:
        pmix_modex_asked(asked, data + 1, len - 1);
        break;
    case PMIX_MESSAGE_JOINED:
        pmix_collective_asked(asked, data + 1, len - 1);
        break;
    case PMIX_MESSAGE_PUBLISH:
    case PMIX_MESSAGE_LOOKUP:
    case PMIX_MESSAGE_UNPUBLISH:
        pmix_store_asked(asked, data[0], data + 1, len - 1);
        break;
    default:
        err_set(&e, ERR_PROTOCOL, "an unknown request");
        pmix_answer(&asked, &e, NULL, 0);
    }
}

void pmix_server_told(const uint8_t *data, size_t len)
{
    if (len > 0 && data[0] == PMIX_MESSAGE_SIGNAL)
        pmix_signal_told(data + 1, len - 1);
    else if (len > 0 && data[0] == PMIX_MESSAGE_EVENT)
        pmix_event_told(data + 1, len - 1);
}
