#include "tests/unit/job.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collectives/hvd.h"
#include "common/base/clock.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"
#include "common/process/module.h"
#include "tests/unit/scratch.h"

#define STARVED_BYTES (2u << 20) /* for who has to say that there is no memory */

struct job_signs {
    _Atomic int ready, came;
};

static void need(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "job: %s: %s\n", what, strerror(errno));
    abort();
}

void job_failed(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: rank %s: not true: %s (last error: %s)\n", file, line, getenv("HVD_RANK"), what,
            hvd_last_error());
    _exit(1);
}

/* ---- the engines --------------------------------------------------------------------------------------- */

static int listen_at(const char *dir, int host)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s/worker.%d", dir, host);
    need(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 128) == 0,
         address.sun_path);
    return fd;
}

static pid_t start_engine(int socket)
{
    char dir[512], path[600];
    struct err e = ERR_INIT;
    pid_t pid;

    need(module_program_dir(dir, sizeof dir, &e) == 0, "program directory");
    snprintf(path, sizeof path, "%s/../modules/hvd-engine", dir);
    pid = fork();
    need(pid >= 0, "fork");
    if (pid > 0)
        return pid;
    dup2(socket, 3);
    execl(path, path, (char *)NULL);
    need(false, path);
    return -1;
}

static void send_message(struct job *j, int host, const Hvd__Engine *m, int passed)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    struct frame f = {.kind = FRAME_CONTROL, .sequence = j->sent[host]++};
    uint8_t header[FRAME_HEADER_SIZE];
    struct err e = ERR_INIT;
    struct buf b;

    buf_init(&b, 65536);
    f.length = (uint32_t)hvd__engine__get_packed_size(m);
    frame_encode_header(&f, header);
    need(buf_put(&b, header, sizeof header) == 0 && message_pack(&m->base, &b, &e) >= 0, "pack");
    struct iovec iov = {(void *)(uintptr_t)buf_data(&b), b.len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (passed >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof passed);
        memcpy(CMSG_DATA(c), &passed, sizeof passed);
    }
    if (sendmsg(j->session[host], &msg, MSG_NOSIGNAL) < 0 && errno != EPIPE)
        need(false, "write to an engine");
    buf_free(&b);
}

static void configure(struct job *j, int host)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    Hvd__EngineConfig c = HVD__ENGINE_CONFIG__INIT;
    Hvd__EngineTuning tuning = HVD__ENGINE_TUNING__INIT;
    Hvd__HostRanks ranks[JOB_HOSTS_MAX], *list[JOB_HOSTS_MAX];
    uint32_t numbers[JOB_HOSTS_MAX][JOB_RANKS_MAX];
    char names[JOB_HOSTS_MAX][16], *address[] = {"127.0.0.1"};

    for (int i = 0; i < j->hosts; i++) {
        snprintf(names[i], sizeof names[i], "node%d", i + 1);
        hvd__host_ranks__init(&ranks[i]);
        ranks[i].name = names[i];
        ranks[i].first_rank = (uint32_t)(i * j->per_host);
        ranks[i].ranks = (uint32_t)j->per_host;
        list[i] = &ranks[i];
        if (!j->by_node)
            continue;
        ranks[i].first_rank = 0;
        ranks[i].rank = numbers[i];
        ranks[i].n_rank = (size_t)j->per_host;
        for (int k = 0; k < j->per_host; k++)
            numbers[i][k] = (uint32_t)(k * j->hosts + i);
    }
    c.job = "test";
    c.epoch = 7;
    c.key = (ProtobufCBinaryData){sizeof j->key, j->key};
    c.token = (ProtobufCBinaryData){sizeof j->token, j->token};
    c.size = (uint32_t)(j->hosts * j->per_host);
    c.host_index = (uint32_t)host;
    c.host = list;
    c.n_host = (size_t)j->hosts;
    c.address = address;
    c.n_address = 1;
    c.heartbeat_ms = 3000;
    tuning.stall_shutdown_ms = (uint64_t)j->stall_ms;
    c.tuning = j->stall_ms > 0 ? &tuning : NULL;
    c.log_level = getenv("JOB_LOG") ? 1 : 3;
    m.body_case = HVD__ENGINE__BODY_CONFIG;
    m.config = &c;
    send_message(j, host, &m, j->listener[host]);
}

static void start_host(struct job *j, int host)
{
    int pair[2];

    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
    j->listener[host] = listen_at(j->dir, host);
    j->engine[host] = start_engine(pair[1]);
    close(pair[1]);
    j->session[host] = pair[0];
    configure(j, host);
}

/* ---- the workers --------------------------------------------------------------------------------------- */

static void set(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

int job_host(const struct job *j, int rank)
{
    return j->by_node ? rank % j->hosts : rank / j->per_host;
}

int job_local_rank(const struct job *j, int rank)
{
    return j->by_node ? rank / j->hosts : rank % j->per_host;
}

static void be_worker(struct job *j, int rank)
{
    char path[128], hex[33];
    int host = job_host(j, rank);

    for (int i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", j->token[i]);
    snprintf(path, sizeof path, "%s/worker.%d", j->dir, host);
    setenv("HVD_WORKER_SOCKET", path, 1);
    setenv("HVD_JOB_TOKEN", hex, 1);
    set("HVD_RANK", rank);
    set("HVD_SIZE", j->hosts * j->per_host);
    set("HVD_LOCAL_RANK", job_local_rank(j, rank));
    set("HVD_LOCAL_SIZE", j->per_host);
    set("HVD_CROSS_RANK", host);
    set("HVD_CROSS_SIZE", j->hosts);
    set("HVD_EPOCH", 7);
    for (int i = 0; i < j->hosts; i++) {
        close(j->session[i]);
        close(j->listener[i]);
    }
    _exit(j->worker(j, rank));
}

static void start_workers(struct job *j)
{
    fflush(NULL);
    for (int rank = 0; rank < j->hosts * j->per_host; rank++) {
        j->pid[rank] = fork();
        need(j->pid[rank] >= 0, "fork");
        if (j->pid[rank] == 0)
            be_worker(j, rank);
        j->pidfd[rank] = (int)syscall(SYS_pidfd_open, j->pid[rank], 0);
        need(j->pidfd[rank] >= 0, "pidfd_open");
    }
}

/* ---- sessions and launcher ----------------------------------------------------------------------------- */

static void tell_links(struct job *j)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    Hvd__Links links = HVD__LINKS__INIT;
    Hvd__Link link[JOB_HOSTS_MAX], *list[JOB_HOSTS_MAX];

    for (int i = 0; i < j->hosts; i++) {
        hvd__link__init(&link[i]);
        link[i].host = (uint32_t)i;
        link[i].address = &j->link[i];
        link[i].n_address = 1;
        link[i].port = j->port[i];
        link[i].rank_link_hosts = j->rank_link_hosts[i];
        link[i].pieces_fit = j->pieces_fit[i];
        link[i].machine = j->machine[i];
        link[i].processors = j->processors_of[i];
        list[i] = &link[i];
    }
    links.link = list;
    links.n_link = (size_t)j->hosts;
    m.body_case = HVD__ENGINE__BODY_LINKS;
    m.links = &links;
    for (int i = 1; i < j->hosts; i++)
        send_message(j, i, &m, -1);
    (void)poll(NULL, 0, j->late_ms);
    send_message(j, 0, &m, -1);
}

static void take_message(struct job *j, int host, const Hvd__Engine *m)
{
    if (m->body_case == HVD__ENGINE__BODY_INITIALIZED)
        j->initialized++;
    if (m->body_case == HVD__ENGINE__BODY_SHUT_DOWN)
        j->shut_down++;
    if (m->body_case != HVD__ENGINE__BODY_LINK || j->hosts == 1)
        return;
    j->link[host] = "127.0.0.1";
    j->port[host] = m->link->port;
    j->rank_link_hosts[host] = j->without_links == host + 1 ? 0 : m->link->rank_link_hosts;
    j->pieces_fit[host] = j->without_fit != host + 1 && m->link->pieces_fit;
    j->machine[host] = m->link->machine + (j->elsewhere == host + 1);
    j->processors_of[host] = j->processors > 0 ? (uint32_t)j->processors : m->link->processors;
    if (++j->links == j->hosts)
        tell_links(j);
}

/* Reads one frame, blocking: an engine writes whole ones. */
static bool read_frame(struct job *j, int host)
{
    uint8_t *bytes;
    struct err e = ERR_INIT;
    struct frame f;
    struct buf b;
    bool ok;

    buf_init(&b, 65536);
    bytes = buf_reserve(&b, FRAME_HEADER_SIZE);
    if (recv(j->session[host], bytes, FRAME_HEADER_SIZE, MSG_WAITALL) != FRAME_HEADER_SIZE) {
        buf_free(&b);
        return false;
    }
    buf_commit(&b, FRAME_HEADER_SIZE);
    uint32_t length = get_u32(bytes);
    ok = (bytes = buf_reserve(&b, length)) &&
         recv(j->session[host], bytes, length, MSG_WAITALL) == (ssize_t)length;
    buf_commit(&b, length);
    need(ok && frame_decode(&b, &f, &e) == 1, "frame");
    Hvd__Engine *m = message_unpack_engine(f.payload, f.length, &e);
    need(m != NULL, "message");
    take_message(j, host, m);
    message_free(m);
    buf_free(&b);
    return true;
}

static void worker_ended(struct job *j, int rank)
{
    Hvd__Engine m = HVD__ENGINE__INIT;
    Hvd__RankEnded ended = HVD__RANK_ENDED__INIT;
    char cause[64], host[16];
    int status;

    need(waitpid(j->pid[rank], &status, 0) == j->pid[rank], "waitpid");
    close(j->pidfd[rank]);
    j->pidfd[rank] = -1;
    if (!j->timed_out)
        j->status[rank] = status;
    if (WIFSIGNALED(status))
        snprintf(cause, sizeof cause, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(cause, sizeof cause, "exit status %d", WEXITSTATUS(status));
    snprintf(host, sizeof host, "node%d", job_host(j, rank) + 1);
    ended.rank = (uint32_t)rank;
    ended.host = host;
    ended.pid = (uint32_t)j->pid[rank];
    ended.failed = status != 0;
    ended.cause = cause;
    m.body_case = HVD__ENGINE__BODY_RANK_ENDED;
    m.rank_ended = &ended;
    for (int i = 0; i < j->hosts && !j->silent_sessions; i++)
        if (j->session[i] >= 0)
            send_message(j, i, &m, -1);
}

static int watch_once(struct job *j, int timeout_ms)
{
    struct pollfd p[JOB_HOSTS_MAX + JOB_RANKS_MAX];
    int ranks = j->hosts * j->per_host, left = 0;

    for (int i = 0; i < j->hosts; i++)
        p[i] = (struct pollfd){j->session[i], POLLIN, 0};
    for (int i = 0; i < ranks; i++)
        p[j->hosts + i] = (struct pollfd){j->pidfd[i], POLLIN, 0};
    poll(p, (nfds_t)(j->hosts + ranks), timeout_ms);
    for (int i = 0; i < j->hosts; i++) {
        if (p[i].revents && !read_frame(j, i)) {
            close(j->session[i]);
            j->session[i] = -1;
        }
    }
    for (int i = 0; i < ranks; i++) {
        if (p[j->hosts + i].revents)
            worker_ended(j, i);
        left += j->pidfd[i] >= 0;
    }
    return left;
}

/* All its memory so far and a little more. */
static void starve(pid_t pid)
{
    char path[64];
    unsigned long pages = 0;
    struct rlimit limit;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    need(f && fscanf(f, "%lu", &pages) == 1, path);
    fclose(f);
    limit.rlim_cur = limit.rlim_max = pages * (rlim_t)sysconf(_SC_PAGESIZE) + STARVED_BYTES;
    need(prlimit(pid, RLIMIT_AS, &limit, NULL) == 0, "prlimit");
}

static void kill_engine(pid_t pid)
{
    siginfo_t info;

    kill(pid, SIGKILL);
    need(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT) == 0, "waitid");
}

static void interfere(struct job *j)
{
    pid_t last = j->engine[j->hosts - 1];

    if (j->fault == JOB_NO_FAULT || j->fault_at || atomic_load(&j->signs->ready) < j->fault_after)
        return;
    if (j->fault == JOB_KILL_ENGINE)
        kill_engine(j->engine[0]);
    else if (j->fault == JOB_STARVE_ENGINE)
        starve(last);
    else
        kill(last, SIGSTOP);
    j->fault_at = clock_now();
    atomic_store(&j->signs->came, 1);
}

static void end_engines(struct job *j)
{
    for (int i = 0; i < j->hosts; i++) {
        char path[128];
        while (j->session[i] >= 0 && recv(j->session[i], path, 1, MSG_PEEK | MSG_DONTWAIT) == 1 &&
               read_frame(j, i))
            ;
        if (j->session[i] >= 0)
            close(j->session[i]);
        close(j->listener[i]);
        if (j->fault == JOB_FREEZE_ENGINE &&
            i == j->hosts - 1) /* only then: SIGCONT disturbs a leak checker at its work */
            kill(j->engine[i], SIGCONT);
        need(waitpid(j->engine[i], &j->engine_status[i], 0) == j->engine[i], "waitpid of an engine");
        snprintf(path, sizeof path, "%s/worker.%d", j->dir, i);
        unlink(path);
    }
    rmdir(j->dir);
}

/* As the tests' own limits. */
static uint64_t longer(int seconds)
{
    const char *times = getenv("CK_TIMEOUT_MULTIPLIER");

    return (uint64_t)seconds * NSEC_PER_SEC * (times ? strtoul(times, NULL, 10) : 1);
}

void job_run(struct job *j, int seconds)
{
    uint64_t limit = clock_now() + longer(seconds);

    memset(j->sent, 0, sizeof j->sent);
    j->initialized = j->shut_down = j->links = 0;
    j->timed_out = false;
    j->fault_at = 0;
    j->signs = job_shared(sizeof *j->signs);
    need(scratch_dir(j->dir, "job") != NULL, "mkdtemp");
    need(getrandom(j->key, sizeof j->key, 0) == sizeof j->key &&
             getrandom(j->token, sizeof j->token, 0) == 16,
         "random");
    for (int i = 0; i < j->hosts; i++)
        start_host(j, i);
    start_workers(j);
    while (watch_once(j, j->fault != JOB_NO_FAULT && !j->fault_at ? 10 : 200) > 0) {
        interfere(j);
        if (clock_now() < limit || j->timed_out)
            continue;
        j->timed_out = true;
        for (int i = 0; i < j->hosts * j->per_host; i++) {
            if (j->pidfd[i] >= 0) {
                j->status[i] = -1;
                kill(j->pid[i], SIGKILL);
            }
        }
    }
    end_engines(j);
    munmap(j->signs, sizeof *j->signs);
    j->signs = NULL;
}

void job_ready(const struct job *job)
{
    atomic_fetch_add(&job->signs->ready, 1);
}

void job_await_fault(const struct job *job)
{
    job_ready(job);
    job_await(&job->signs->came, 1);
}

bool job_succeeded(const struct job *j)
{
    bool ok = !j->timed_out;

    if (j->timed_out)
        fprintf(stderr, "job: the time was up\n");
    for (int i = 0; i < j->hosts * j->per_host; i++) {
        if (j->status[i] != 0)
            fprintf(stderr, "job: rank %d ended with status 0x%x\n", i, (unsigned)j->status[i]);
        ok = ok && j->status[i] == 0;
    }
    for (int i = 0; i < j->hosts; i++) {
        if (j->engine_status[i] != 0)
            fprintf(stderr, "job: engine %d ended with status 0x%x\n", i, (unsigned)j->engine_status[i]);
        ok = ok && j->engine_status[i] == 0;
    }
    return ok;
}

struct job job_of(struct job_shape shape, int (*worker)(const struct job *job, int rank))
{
    return (struct job){
        .hosts = shape.hosts, .per_host = shape.per_host, .by_node = shape.by_node, .worker = worker};
}

struct job job_ran(struct job_shape shape, int (*worker)(const struct job *job, int rank))
{
    struct job job = job_of(shape, worker);

    job_run(&job, JOB_SECONDS);
    return job;
}

void job_must_succeed(struct job job)
{
    ck_assert(job_succeeded(&job));
    ck_assert_int_eq(job.initialized, job.hosts * job.per_host);
    ck_assert_int_eq(job.shut_down, job.hosts * job.per_host);
}

void *job_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    need(memory != MAP_FAILED, "shared memory");
    return memory;
}

void job_await(const _Atomic int *counter, int value)
{
    while (atomic_load(counter) < value)
        usleep(1000);
}
