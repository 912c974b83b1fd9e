#include "tests/unit/fake_launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/protocol/contracts.h"
#include "common/process/module.h"

extern char **environ;

static void job_name(char *name, size_t size)
{
    snprintf(name, size, "t-%d", (int)getpid());
}

static void pump_out(struct fake *f)
{
    const uint8_t *bytes;
    size_t len;
    while (!f->closed && (len = channel_output(&f->channel, &bytes)) > 0) {
        ssize_t n = send(f->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        channel_written(&f->channel, (size_t)n);
    }
}

static void on_exited(struct fake *f, const Hvd__Exited *x)
{
    struct fake_rank *r = &f->rank[x->rank % FAKE_RANKS];
    r->exited = true;
    r->status = x->status;
    r->signal = x->signal;
    r->by_us = x->by_us;
    r->not_shut_down = x->not_shut_down;
    r->told_peer = x->told_peer;
    f->exited++;
}

static void on_welcome(struct fake *f, const Hvd__Welcome *w)
{
    f->welcomed = true;
    f->session_pid = w->pid;
    f->slots = w->slots;
    f->free_port = w->free_port;
    snprintf(f->version, sizeof f->version, "%s", w->version);
    snprintf(f->containment, sizeof f->containment, "%s", w->containment);
}

static void on_control(void *ctx, const Hvd__Control *m)
{
    struct fake *f = ctx;
    switch (m->body_case) {
    case HVD__CONTROL__BODY_WELCOME:
        on_welcome(f, m->welcome);
        break;
    case HVD__CONTROL__BODY_SPAWNED:
        f->rank[m->spawned->rank % FAKE_RANKS].spawned = true;
        f->rank[m->spawned->rank % FAKE_RANKS].pid = m->spawned->pid;
        f->spawned++;
        break;
    case HVD__CONTROL__BODY_REFUSED:
        f->refused = true;
        f->refused_code = m->refused->code;
        snprintf(f->refused_text, sizeof f->refused_text, "%s", m->refused->text);
        break;
    case HVD__CONTROL__BODY_EXITED:
        on_exited(f, m->exited);
        break;
    case HVD__CONTROL__BODY_CREDIT:
        f->rank[m->credit->rank % FAKE_RANKS].granted += m->credit->bytes;
        break;
    case HVD__CONTROL__BODY_NOTICE:
        snprintf(f->notice, sizeof f->notice, "%s", m->notice->text);
        break;
    case HVD__CONTROL__BODY_FAULT:
        if (f->fault[0])
            break;
        snprintf(f->fault, sizeof f->fault, "%s", m->fault->text);
        f->exited_before_fault = f->exited;
        break;
    case HVD__CONTROL__BODY_PING:
        f->pings++;
        break;
    case HVD__CONTROL__BODY_ENDED:
        f->ended = true;
        f->leftovers = (uint32_t)m->ended->n_leftover;
        break;
    default:
        break;
    }
}

static void on_data(void *ctx, const struct frame *frame)
{
    struct fake *f = ctx;
    struct fake_rank *r = &f->rank[frame->rank % FAKE_RANKS];
    int i = frame->stream;
    r->frames++;
    r->unfinished += (frame->flags & FRAME_FLAG_UNFINISHED) != 0;
    r->line_ends += (frame->flags & FRAME_FLAG_LINE_END) != 0;
    if (frame->flags & FRAME_FLAG_EOF)
        r->eof[i] = true;
    if (frame->length == 0)
        return;
    r->text[i] = realloc(r->text[i], r->len[i] + frame->length + 1);
    memcpy(r->text[i] + r->len[i], frame->payload, frame->length);
    r->len[i] += frame->length;
    r->text[i][r->len[i]] = '\0';
    if (!f->stingy)
        fake_credit(f, frame->rank, frame->stream, frame->length);
}

static const struct channel_events events = {on_control, on_data, NULL};

void fake_start(struct fake *f, const char *containment)
{
    char path[4096], dir[4000];
    int pair[2];
    memset(f, 0, sizeof *f);
    channel_init(&f->channel, &events, f, true, 16u << 20);
    channel_set_session(&f->channel, 0);
    if (module_program_dir(dir, sizeof dir, NULL) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    snprintf(path, sizeof path, "%s/../hvdagent", dir);
    f->agent = fork();
    if (f->agent == 0) {
        dup2(pair[1], 0);
        dup2(pair[1], 1);
        if (containment)
            setenv("HVD_CONTAINMENT", containment, 1);
        else
            unsetenv("HVD_CONTAINMENT");
        execl(path, "hvdagent", "session", (char *)NULL);
        _exit(99);
    }
    close(pair[1]);
    f->fd = pair[0];
}

static void send_control(struct fake *f, Hvd__Control *m)
{
    if (channel_send(&f->channel, m) < 0)
        abort();
    pump_out(f);
}

void fake_say(struct fake *f, const void *message, size_t len)
{
    struct err e = ERR_INIT;
    Hvd__Control *m = message_unpack_control(message, len, &e);
    if (!m || channel_send(&f->channel, m) < 0)
        abort(); /* a fault of the test */
    pump_out(f);
    message_free(m);
}

void fake_hello(struct fake *f, const char *version, uint32_t heartbeat_ms, uint32_t grace_ms)
{
    static uint8_t key[32];
    char name[64];
    Hvd__Hello h = HVD__HELLO__INIT;
    job_name(name, sizeof name);
    h.version = (char *)(uintptr_t)version;
    h.protocol = PROTOCOL_VERSION + f->later_protocols;
    h.job = name;
    h.host = (char *)"here";
    h.key.data = key;
    h.key.len = sizeof key;
    h.heartbeat_ms = heartbeat_ms;
    h.grace_ms = grace_ms;
    h.log_level = 3;
    CONTROL(m, HELLO, hello, &h);
    send_control(f, &m);
}

void fake_go(struct fake *f)
{
    Hvd__Go go = HVD__GO__INIT;
    CONTROL(m, GO, go, &go);
    send_control(f, &m);
}

void fake_spawn(struct fake *f, const struct fake_job *job)
{
    Hvd__Spawn s = HVD__SPAWN__INIT;
    s.contracts = CONTRACT_ENV;
    Hvd__HostRanks here = HVD__HOST_RANKS__INIT, *hosts[1] = {&here};
    Hvd__Worker worker[FAKE_RANKS], *workers[FAKE_RANKS];
    char *env[64] = {(char *)"PATH=/usr/bin:/bin", (char *)"HOME=/tmp"};
    for (unsigned i = 0; i < job->workers; i++) {
        hvd__worker__init(&worker[i]);
        worker[i].rank = worker[i].local_rank = i;
        worker[i].cross_size = 1;
        worker[i].has_stdin = job->has_stdin && i == 0;
        workers[i] = &worker[i];
    }
    while (job->argv[s.n_argv])
        s.n_argv++;
    s.argv = (char **)(uintptr_t)job->argv;
    s.env = env;
    s.n_env = 2;
    for (; job->env && job->env[s.n_env - 2]; s.n_env++)
        env[s.n_env] = (char *)(uintptr_t)job->env[s.n_env - 2];
    s.wdir = (char *)(uintptr_t)(job->wdir ? job->wdir : "");
    s.worker = workers;
    s.n_worker = job->workers;
    s.size = job->workers;
    here.name = (char *)"here";
    here.ranks = job->workers;
    s.host = hosts;
    s.n_host = 1;
    s.master_address = (char *)"127.0.0.1";
    s.master_port = f->free_port;
    s.output_window = job->window ? job->window : 1u << 20;
    CONTROL(m, SPAWN, spawn, &s);
    send_control(f, &m);
}

void fake_signal(struct fake *f, int number)
{
    Hvd__Signal s = HVD__SIGNAL__INIT;
    s.number = number;
    CONTROL(m, SIGNAL, signal, &s);
    send_control(f, &m);
}

void fake_teardown(struct fake *f, uint32_t grace_ms)
{
    Hvd__Teardown t = HVD__TEARDOWN__INIT;
    t.grace_ms = grace_ms;
    CONTROL(m, TEARDOWN, teardown, &t);
    send_control(f, &m);
}

void fake_credit(struct fake *f, uint32_t rank, uint32_t stream, uint32_t bytes)
{
    Hvd__Credit c = HVD__CREDIT__INIT;
    c.rank = rank;
    c.stream = stream;
    c.bytes = bytes;
    CONTROL(m, CREDIT, credit, &c);
    send_control(f, &m);
}

void fake_input(struct fake *f, uint32_t rank, const void *bytes, size_t len, bool eof)
{
    f->rank[rank].granted -= (uint32_t)len;
    if (channel_send_data(&f->channel, rank, STREAM_STDIN, eof ? FRAME_FLAG_EOF : 0, bytes, len) < 0)
        abort();
    pump_out(f);
}

void fake_bye(struct fake *f)
{
    Hvd__Bye b = HVD__BYE__INIT;
    CONTROL(m, BYE, bye, &b);
    send_control(f, &m);
}

void fake_ping(struct fake *f)
{
    Hvd__Ping p = HVD__PING__INIT;
    CONTROL(m, PING, ping, &p);
    send_control(f, &m);
}

static void receive_some(struct fake *f, int ms)
{
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    uint8_t bytes[65536];
    struct err e = ERR_INIT;
    if (f->closed) {
        (void)poll(NULL, 0, ms);
        return;
    }
    if (poll(&p, 1, ms) <= 0)
        return;
    ssize_t n = recv(f->fd, bytes, sizeof bytes, 0);
    if (n <= 0) {
        f->closed = true;
    } else if (channel_receive(&f->channel, bytes, (size_t)n, &e) < 0) {
        fprintf(stderr, "fake launcher: %s\n", e.text);
        f->broken = f->closed = true;
    }
    pump_out(f);
}

bool fake_wait(struct fake *f, const bool *flag, unsigned ms)
{
    uint64_t end = clock_now() + ms * NSEC_PER_MSEC, now;
    while (!(flag && *flag) && (now = clock_now()) < end && !(flag && f->closed && flag != &f->closed))
        receive_some(f, (int)((end - now) / NSEC_PER_MSEC) + 1);
    return flag && *flag;
}

bool fake_wait_exits(struct fake *f, unsigned count, unsigned ms)
{
    uint64_t end = clock_now() + ms * NSEC_PER_MSEC, now;
    while (f->exited < count && !f->closed && (now = clock_now()) < end)
        receive_some(f, (int)((end - now) / NSEC_PER_MSEC) + 1);
    for (unsigned i = 0; i < count && i < FAKE_RANKS; i++)
        while ((!f->rank[i].eof[1] || !f->rank[i].eof[2]) && !f->closed && (now = clock_now()) < end)
            receive_some(f, (int)((end - now) / NSEC_PER_MSEC) + 1);
    return f->exited >= count;
}

void fake_hang_up(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    f->closed = true;
}

int fake_agent_status(struct fake *f, unsigned ms)
{
    uint64_t end = clock_now() + ms * NSEC_PER_MSEC;
    int status;
    while (f->agent > 0 && waitpid(f->agent, &status, WNOHANG) == 0) {
        if (clock_now() > end)
            return -1;
        receive_some(f, 5);
    }
    f->agent = 0;
    return status;
}

void fake_free(struct fake *f)
{
    fake_hang_up(f);
    if (f->agent > 0)
        (void)fake_agent_status(f, 8000);
    for (int i = 0; i < FAKE_RANKS; i++)
        for (int k = 0; k < 3; k++)
            free(f->rank[i].text[k]);
    channel_free(&f->channel);
}

static bool file_has(const char *path, const char *mark)
{
    char text[65536];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text) : -1;
    if (fd >= 0)
        close(fd);
    return n > 0 && memmem(text, (size_t)n, mark, strlen(mark));
}

unsigned fake_count(const char *mark)
{
    DIR *d = opendir("/proc");
    unsigned n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        char environment[300], command[300];
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid <= 0 || pid == getpid())
            continue;
        /* A zombie has neither. */
        snprintf(environment, sizeof environment, "/proc/%ld/environ", pid);
        snprintf(command, sizeof command, "/proc/%ld/cmdline", pid);
        n += file_has(environment, mark) || file_has(command, mark);
    }
    if (d)
        closedir(d);
    return n;
}

bool fake_count_becomes(const char *mark, unsigned wanted, unsigned ms)
{
    uint64_t end = clock_now() + ms * NSEC_PER_MSEC;
    while (fake_count(mark) != wanted) {
        if (clock_now() > end)
            return false;
        (void)poll(NULL, 0, 10);
    }
    return true;
}

static unsigned entries_with(const char *dir, const char *word)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += strstr(entry->d_name, word) != NULL;
    if (d)
        closedir(d);
    return n;
}

/* The cgroup of this process below the mount point, "" for its root. */
static void own_cgroup(char *path, size_t size)
{
    char line[300];
    FILE *f = fopen("/proc/self/cgroup", "re");
    path[0] = '\0';
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "0::/", 4) == 0)
            snprintf(path, size, "%.*s", (int)strcspn(line + 4, "\n"), line + 4);
    if (f)
        fclose(f);
}

unsigned fake_traces(void)
{
    char name[64], dir[300], own[200];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    unsigned n = 0;
    job_name(name, sizeof name);
    own_cgroup(own, sizeof own);
    const char *bases[] = {runtime ? runtime : "/nowhere", "/tmp"};
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%.200s/hvd-%u", bases[i], (unsigned)geteuid());
        n += entries_with(dir, name);
    }
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "%s/%s", mounts[i], own);
        n += entries_with(dir, name);
    }
    return n;
}

bool fake_traces_become(unsigned wanted, unsigned ms)
{
    uint64_t end = clock_now() + ms * NSEC_PER_MSEC;
    while (fake_traces() != wanted) {
        if (clock_now() > end)
            return false;
        (void)poll(NULL, 0, 10);
    }
    return true;
}
