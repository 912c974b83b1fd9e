/* Joining and leaving the job.
 *
 * hvdrun's agent gives a worker its place in HVD_* variables. hvd_init connects to HVD_WORKER_SOCKET, shows
 * the job's token, maps the control region it is given, checks that region and variables agree, and returns
 * when every rank of the job is here. When anything fails, everything made so far is undone and hvd_init may
 * be called again. Without HVD_WORKER_SOCKET the process is a job of its own, unless another launcher's
 * variables say that it is one of many: then running on silently would train N times alone.
 *
 * In an elastic job the variables give a worker its number only. The engine says which rank the worker has,
 * when a membership with the worker has begun. hvd_init waits for that, also over failures of others.
 *
 * hvd_shutdown is a collective operation too; the engine hears of it before the call returns, so an exit
 * after it is no death. */
#include <ctype.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "collectives/client/api/join.h"
#include "collectives/client/arena.h"
#include "collectives/client/carry.h"
#include "collectives/client/counts.h"
#include "collectives/client/flight.h"
#include "collectives/client/gpu/gpu_path.h"
#include "collectives/client/names.h"
#include "collectives/client/rpc.h"
#include "collectives/client/sets.h"
#include "common/base/clock.h"

#define PATIENCE_MS   1000 /* of hvd_shutdown, before it looks for operations of others */
#define SLICE_SECONDS 1    /* overdue.h counts them */

static void mark_forked(void)
{
    if (atomic_load(&client.state) != CLIENT_NONE)
        atomic_store(&client.state, CLIENT_FORKED);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, mark_forked);
}

/* ---- environment --------------------------------------------------------------------------------------- */

static int parse_number(const char *text, long low, long high, long *value)
{
    errno = 0;
    char *rest;
    *value = strtol(text, &rest, 10);
    return errno == 0 && isdigit((unsigned char)*text) && *rest == '\0' && *value >= low && *value <= high
               ? 0
               : -1;
}

static int read_variable(const char *name, long low, long high, int *value)
{
    const char *text = getenv(name);
    if (!text)
        return fail(HVD_ERR_SYSTEM,
                    "%s is not set although HVD_WORKER_SOCKET is: start the program with hvdrun", name);
    long number;
    if (parse_number(text, low, high, &number) != 0)
        return fail(HVD_ERR_SYSTEM, "%s is \"%s\", which is no number from %ld to %ld", name, text, low,
                    high);
    *value = (int)number;
    return HVD_SUCCESS;
}

static int read_place(int *epoch)
{
    client.worker = -1;
    if (getenv("HVD_ELASTIC"))
        return read_variable("HVD_WORKER", 0, INT32_MAX, &client.worker);
    int status = read_variable("HVD_SIZE", 1, INT32_MAX, &client.size);
    if (status == HVD_SUCCESS)
        status = read_variable("HVD_RANK", 0, client.size - 1, &client.rank);
    if (status == HVD_SUCCESS)
        status = read_variable("HVD_LOCAL_SIZE", 1, SHM_MEMBERS_MAX, &client.local_size);
    if (status == HVD_SUCCESS)
        status = read_variable("HVD_LOCAL_RANK", 0, client.local_size - 1, &client.local_rank);
    if (status == HVD_SUCCESS)
        status = read_variable("HVD_CROSS_SIZE", 1, client.size, &client.cross_size);
    if (status == HVD_SUCCESS)
        status = read_variable("HVD_CROSS_RANK", 0, client.cross_size - 1, &client.cross_rank);
    return status == HVD_SUCCESS ? read_variable("HVD_EPOCH", 0, INT32_MAX, epoch) : status;
}

static int read_token(uint8_t token[WORKER_TOKEN_SIZE])
{
    const char *hex = getenv("HVD_JOB_TOKEN");
    size_t len = hex ? strlen(hex) : 0;
    if (len != 2 * WORKER_TOKEN_SIZE || strspn(hex, "0123456789abcdefABCDEF") != len)
        return fail(HVD_ERR_SYSTEM,
                    "HVD_JOB_TOKEN is not set as hvdrun sets it: start the program with hvdrun");
    for (size_t i = 0; i < WORKER_TOKEN_SIZE; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        token[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return HVD_SUCCESS;
}

/* Another launcher's word that there are more of us than one. */
static int check_alone(void)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",     "MPI_LOCALNRANKS",
                                        "WORLD_SIZE",           "HOROVOD_SIZE", "SLURM_NTASKS"};
    long value;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char *text = getenv(sizes[i]);
        if (text && parse_number(text, 2, INT32_MAX, &value) == 0)
            return fail(HVD_ERR_SYSTEM,
                        "%s is %ld, but this worker was not started by hvdrun, so it would run alone: start "
                        "the job with "
                        "hvdrun -np %ld PROGRAM",
                        sizes[i], value, value);
    }
    return HVD_SUCCESS;
}

/* ---- the engine ---------------------------------------------------------------------------------------- */

static int connect_engine(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = SLICE_SECONDS};
    size_t len = strlen(path);
    if (len == 0 || len >= sizeof address.sun_path)
        return fail(HVD_ERR_SYSTEM, "HVD_WORKER_SOCKET is \"%s\", which is no path of a socket", path);
    memcpy(address.sun_path, path, len);
    client.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client.socket < 0)
        return fail(HVD_ERR_SYSTEM, "cannot make a socket: %s", strerror(errno));
    setsockopt(client.socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(client.socket, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1)) != 0)
        return fail(errno == ECONNREFUSED ? HVD_ERR_ENGINE : HVD_ERR_SYSTEM,
                    "cannot connect to the job's engine at %s: %s%s", path, strerror(errno),
                    errno == ECONNREFUSED ? ": the engine has gone" : "");
    return HVD_SUCCESS;
}

static int map_region(int fd)
{
    const struct region *r = &client.region;
    struct err e = ERR_INIT;
    if (region_map(&client.region, fd, &e) != 0)
        return fail(HVD_ERR_SYSTEM, "%s", e.text);
    char ranks[96];
    if (r->members != (uint32_t)client.local_size || r->size != (uint32_t)client.size ||
        r->rank[client.local_rank] != (uint32_t)client.rank)
        return fail(HVD_ERR_SYSTEM,
                    "HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK or HVD_LOCAL_SIZE is not what hvdrun set: the engine "
                    "has ranks %s of %u here",
                    ranks_text(r->rank, r->members, ranks, sizeof ranks), r->size);
    client.mailbox = region_mailbox(r, (uint32_t)client.local_rank);
    return HVD_SUCCESS;
}

static void take_place(const struct worker_message *m)
{
    struct worker_place place;
    memcpy(&place, m->text, sizeof place);
    client.rank = place.rank;
    client.size = place.size;
    client.local_rank = place.local_rank;
    client.local_size = place.local_size;
    client.cross_rank = place.cross_rank;
    client.cross_size = place.cross_size;
    client.epochs = place.membership;
}

static int say_hello(int epoch)
{
    struct worker_message m = {.type = WORKER_HELLO,
                               .id = client.worker >= 0,
                               .set = WORKER_SEVERAL_LINKS,
                               .rank = (uint32_t)(client.worker >= 0 ? client.worker : client.rank),
                               .epoch = client.worker >= 0 ? client.epochs : (uint32_t)epoch + client.epochs};
    int fds[WORKER_HELLO_FDS] = {-1, -1};
    unsigned number = WORKER_HELLO_FDS;
    int status = read_token(m.token);
    if (status == HVD_SUCCESS)
        status = rpc(&m, -1, fds, &number);
    if (status != HVD_SUCCESS)
        return status;
    client.kick = fds[1];
    if (client.worker >= 0)
        take_place(&m);
    status = number == WORKER_HELLO_FDS ? map_region(fds[0])
                                        : fail(HVD_ERR_ENGINE, "the engine's greeting is incomplete");
    if (fds[0] >= 0)
        close(fds[0]);
    return status;
}

static void measure_crowd(void)
{
    cpu_set_t set;
    int processors = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    /* A bound rank has processors of its own, as far as it knows; unbound ones share all of them. */
    client.crowd = 1;
    if (processors == online && client.local_size > processors)
        client.crowd = (uint32_t)((client.local_size + processors - 1) / processors);
}

static bool keeps;    /* hvd_reset: memory of hvd_alloc and process sets stay */
static bool has_sets; /* elastic: the ranks of this membership have agreed about their sets */

static int join_job(const char *path)
{
    int epoch = 0;
    int status = read_place(&epoch);
    if (status == HVD_SUCCESS)
        status = connect_engine(path);
    if (status == HVD_SUCCESS)
        status = say_hello(epoch);
    if (status != HVD_SUCCESS)
        return status;
    counts_own();
    flight_open();
    measure_crowd();
    status = set_table_open();
    if (status == HVD_SUCCESS)
        status = operation_run_fixed(tensor_fixed(SHM_SLOT_BARRIER), SHM_BARRIER);
    if (status == HVD_SUCCESS)
        status = rpc_simple(WORKER_INITIALIZED);
    /* The launcher knows now who is here: a rank that is stopped has not come, and is not waited for. */
    if (status == HVD_SUCCESS && client.worker >= 0)
        status = sets_agree();
    has_sets = status == HVD_SUCCESS && client.worker >= 0;
    return status;
}

/* Gives everything back. Slots first: they point into the region. */
static void leave_job(void)
{
    client.gpu->close(); /* its thread writes a timeline, too */
    rank_link_close();
    timeline_close();
    pending_forget();
    sized_forget();
    tensors_free();
    client.gpu->close_contexts();
    if (keeps && has_sets)
        set_table_save();
    else if (!keeps)
        carry_drop_all();
    has_sets = false;
    set_table_close();
    arena_close(keeps);
    region_unmap(&client.region);
    if (client.socket >= 0)
        close(client.socket);
    if (client.kick >= 0)
        close(client.kick);
    client.socket = client.kick = -1;
    client.mailbox = NULL;
    client.rpc_broken = client.solo = false;
    client.path = NULL;
}

static int join_alone(void)
{
    int status = check_alone();
    client.rank = client.local_rank = client.cross_rank = 0;
    client.size = client.local_size = client.cross_size = 1;
    client.solo = true;
    client.path = &solo_path;
    return status ? status : set_table_open();
}

int hvd_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *path = getenv("HVD_WORKER_SOCKET");
    /* Not client_check: what is no failure must not leave a sentence behind. */
    if (atomic_load_explicit(&client.state, memory_order_acquire) != CLIENT_NONE)
        return client_check(); /* initialised already, or forked */
    pthread_once(&once, watch_forks);
    client.gpu = &gpu_path;
    int status = path ? join_job(path) : join_alone();
    while (status == HVD_ERR_PEER && client.worker >= 0) { /* the next membership is without that peer */
        leave_job();
        status = join_job(path);
    }
    if (status == HVD_SUCCESS)
        status = timeline_open();
    if (status != HVD_SUCCESS) {
        leave_job();
        return status;
    }
    atomic_store_explicit(&client.state, CLIENT_READY, memory_order_release);
    return HVD_SUCCESS;
}

/* A rank that waits long may be needed elsewhere: others that wait for it may never call hvd_shutdown. */
static int shut_down_together(struct tensor *t)
{
    rank_link_stop();
    int status = operation_begin_fixed(t, SHM_SHUTDOWN);
    if (status == HVD_SUCCESS)
        status = operation_wait_until(t, clock_now() + PATIENCE_MS * NSEC_PER_MSEC);
    if (status == HVD_ERR_TIMEOUT)
        status = join_refuse(t);
    if (t)
        pthread_mutex_unlock(&t->lock);
    return status;
}

int hvd_shutdown(void)
{
    join_reap();
    int status = client_may_begin();
    if (status && status != HVD_ERR_ENGINE && atomic_load(&client.state) != CLIENT_GAVE_UP)
        return status;
    if (status == HVD_ERR_ENGINE && client.worker >= 0 && region_poisoned(&client.region))
        status = fail_poisoned(); /* the engine has not gone: it has left this membership already */
    if (!status) {
        client.gpu->drain();
        status = shut_down_together(tensor_fixed(SHM_SLOT_SHUTDOWN));
    }
    if (status == HVD_ERR_MISMATCH)
        return status; /* others have joined: they are not ready to leave, and still need this rank */
    client.epochs += status == HVD_SUCCESS && client.worker < 0;
    int told = client.solo ? HVD_SUCCESS : rpc_simple(WORKER_SHUT_DOWN);
    if (status == HVD_SUCCESS)
        status = told;
    atomic_store_explicit(&client.state, CLIENT_NONE, memory_order_release);
    leave_job();
    return status;
}

int hvd_reset(void)
{
    keeps = client.worker >= 0;
    int status = hvd_shutdown();
    if (status == HVD_SUCCESS || status == HVD_ERR_PEER)
        status = hvd_init();
    keeps = false;
    return status;
}

int hvd_membership_changed(void)
{
    int status = client_check();
    if (status != HVD_SUCCESS || client.solo)
        return status;
    return atomic_load_explicit(&client.region.header->next_membership, memory_order_relaxed) != 0;
}

int hvd_stage(int stage)
{
    int status = client_check();
    struct worker_message m = {.type = WORKER_STAGE, .id = (uint32_t)stage};
    if (status != HVD_SUCCESS)
        return status;
    if (stage != HVD_STAGE_STATE && stage != HVD_STAGE_STEP)
        return fail(HVD_ERR_INVALID, "hvd_stage: there is no stage %d", stage);
    return client.solo || client.worker < 0 ? HVD_SUCCESS : rpc(&m, -1, NULL, NULL);
}

int hvd_membership(void)
{
    int status = client_check();
    return status != HVD_SUCCESS ? status : client.worker >= 0 ? (int)client.epochs : 0;
}
