/* Fault countdowns: runs a job again and again while the 1st, 2nd, 3rd ... call of a kind fails in one of its
 * processes (countdown.c does that), until a run in which that call did not come. One TAP line a series.
 *
 *   countdown-run BUILD STEP LANES [WORD]...    every STEPth call; series whose names have one of the words
 *
 * VERBOSE=1 says of every run where it was, its status and what was said; AT=N makes that one alone.
 * COUNTDOWN_REACH holds the options that reach a host over SSH: then hvdrun's series run once more with it.
 *
 * A run passes when it ended in time, crashed nothing, left nothing, and either succeeded with every byte of
 * output or failed with a line of hvdrun's that says so. Processes that a job leaves become our children,
 * because we are the subreaper. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 10000 /* of a run: grace period, heartbeat time-out and what SIGKILL gets are less */
#define GONE_MS  500   /* until what has been killed is reaped */
#define TEXT_MAX (512 * 1024)
#define IN_LINES 6000
#define LINES    4000
#define LINE     "%c %05d abcdefgh\n"
#define LINE_LEN 17
#define WORDS    40

enum job { IO, TRAIN, SSH };
static const char *const job_names[] = {"io", "train", "ssh"};
static const char *const processes[] = {"hvdrun", "guard", "session", "engine"};
static const char *const kinds[] = {"malloc",      "read",         "read-eintr",  "read-eagain",
                                    "read-short",  "write",        "write-eintr", "write-eagain",
                                    "write-short", "write-nobufs", "fork",        "connect"};
#define LENGTH(array) (sizeof(array) / sizeof *(array))

struct text {
    size_t len;
    char bytes[TEXT_MAX + 1];
};

static struct lane {
    char dir[PATH_MAX - 64], mark[PATH_MAX], report[PATH_MAX], files[PATH_MAX];
    struct text in, out, err, losses;
    char why[512];
    pid_t pid;
    int status;
    uint64_t took_ms;
    bool failed; /* it has printed a line "not ok" */
} lane;
static const char *build;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void die(const char *what)
{
    printf("not ok - countdown: %s: %s\n", what, strerror(errno));
    fflush(stdout);
    _exit(1);
}

/* ---- the worker of job io ------------------------------------------------------------------------------ */

static int worker(void)
{
    char bytes[4096];
    const char *rank = getenv("HVD_RANK");
    size_t n;
    if (rank && strcmp(rank, "1") == 0) {
        for (int i = 0; i < LINES; i++)
            printf(LINE, 'o', i);
        fputs("e 00000 abcdefgh\n", stderr);
    } else {
        while ((n = fread(bytes, 1, sizeof bytes, stdin)) > 0)
            fwrite(bytes, 1, n, stdout);
    }
    return fflush(stdout) != 0;
}

/* ---- one run ------------------------------------------------------------------------------------------- */

static void remove_files(void)
{
    static const char *const names[] = {"rank.0/stdout", "rank.0/stderr", "rank.1/stdout",
                                        "rank.1/stderr", "rank.0",        "rank.1"};
    char path[PATH_MAX + 32];
    for (size_t i = 0; i < LENGTH(names); i++) {
        snprintf(path, sizeof path, "%s/%s", lane.files, names[i]);
        remove(path);
    }
    remove(lane.files);
    remove(lane.report);
    remove(lane.mark);
}

static void add_words(const char *argv[], int *count, char *text)
{
    for (char *word; (word = strsep(&text, " ")) && *count < WORDS - 12;)
        if (*word)
            argv[(*count)++] = word;
}

static void execute(enum job job, const char *kind, const char *who, unsigned long n)
{
    static char countdown[64], preload[PATH_MAX], program[PATH_MAX], command[PATH_MAX];
    const char *argv[WORDS] = {program, "-np", "2", "--grace", "1", "--heartbeat-timeout", "2"};
    int count = 7;
    /* For fork: the same programs with a clone3 that goes through libc. */
    snprintf(program, sizeof program, "%s/%shvdrun", build, strcmp(kind, "fork") ? "" : "tests/countdown/");
    snprintf(preload, sizeof preload, "%s/tests/countdown.so", build);
    snprintf(countdown, sizeof countdown, "%s:%lu@%s", kind, n, who);
    if (job == SSH)
        add_words(argv, &count, getenv("COUNTDOWN_REACH"));
    if (job == TRAIN) {
        const char *train[] = {"--stdin", "none", command, "--steps", "3", "--hidden", "16"};
        snprintf(command, sizeof command, "%s/examples/train", build);
        memcpy(argv + count, train, sizeof train);
    } else {
        const char *io[] = {"--output-filename", lane.files, "--report", lane.report, command, "--worker"};
        snprintf(command, sizeof command, "%s/tests/countdown-run", build);
        memcpy(argv + count, io, sizeof io);
    }
    setenv("XDG_RUNTIME_DIR", lane.dir, 1);
    setenv("LD_PRELOAD", preload, 1);
    setenv("COUNTDOWN_MARK", lane.mark, 1);
    setenv("COUNTDOWN", countdown, 1);
    execv(program, (char *const *)argv);
    _exit(99);
}

static void take(struct text *text, struct pollfd *p)
{
    ssize_t n = p->revents ? read(p->fd, text->bytes + text->len, TEXT_MAX - text->len) : 1;
    if (n == 0)
        p->fd = -1;
    else if (n > 0 && p->revents)
        text->len += (size_t)n;
}

static void give(size_t *given, struct pollfd *p)
{
    ssize_t n = p->revents ? write(p->fd, lane.in.bytes + *given, lane.in.len - *given) : 0;
    if (n > 0)
        *given += (size_t)n;
    if (p->revents && (n < 0 || *given == lane.in.len)) {
        close(p->fd);
        p->fd = -1;
    }
}

/* Feeds and reads the job until it has ended, then what is still in the pipes. False when it does not end. */
static bool attend(int in, int out, int err)
{
    int child = (int)syscall(SYS_pidfd_open, lane.pid, 0);
    uint64_t began = now_ms();
    size_t given = 0;
    struct pollfd p[4] = {{out, POLLIN, 0}, {err, POLLIN, 0}, {in, POLLOUT, 0}, {child, POLLIN, 0}};
    bool ended = false;
    while (now_ms() - began < LIMIT_MS && !ended) {
        if (poll(p, 4, 100) <= 0)
            continue;
        ended = p[3].revents;
        take(&lane.out, &p[0]);
        take(&lane.err, &p[1]);
        give(&given, &p[2]);
    }
    for (int i = 0; i < 2; i++)
        while (p[i].fd >= 0 && poll(&p[i], 1, 0) > 0)
            take(i ? &lane.err : &lane.out, &p[i]);
    if (p[2].fd >= 0)
        close(p[2].fd);
    lane.took_ms = now_ms() - began;
    close(child);
    lane.out.bytes[lane.out.len] = lane.err.bytes[lane.err.len] = '\0';
    return ended;
}

static void run(enum job job, const char *kind, const char *who, unsigned long n, bool *ended)
{
    int in[2], out[2], err[2];
    remove_files();
    lane.out.len = lane.err.len = 0;
    if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
        die("pipe2");
    lane.pid = fork();
    if (lane.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        execute(job, kind, who, n);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    fcntl(in[1], F_SETFL, O_NONBLOCK);
    *ended = attend(in[1], out[0], err[0]);
    if (!*ended)
        kill(lane.pid, SIGKILL);
    waitpid(lane.pid, &lane.status, 0);
    close(out[0]);
    close(err[0]);
}

/* ---- conditions that every run must meet --------------------------------------------------------------- */

static bool bad(const char *fmt, const char *what)
{
    if (!lane.why[0])
        snprintf(lane.why, sizeof lane.why, fmt, what);
    return false;
}

/* Ends what is left of the job and names the first. */
static void check_processes(void)
{
    char path[64], children[256] = "", name[64] = "?";
    uint64_t began = now_ms();
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid == 0 && now_ms() - began > GONE_MS) {
            snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
            FILE *f = fopen(path, "r");
            pid = f && fgets(children, sizeof children, f) ? (pid_t)strtol(children, NULL, 10) : 0;
            if (f)
                fclose(f);
            if (pid <= 0)
                return;
            snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
            f = fopen(path, "r");
            if (f && fgets(name, sizeof name, f))
                name[strcspn(name, "\n")] = '\0';
            if (f)
                fclose(f);
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            bad("a process was left: %s", name);
        } else if (pid == 0) {
            usleep(2000);
        }
    }
}

static void check_files(void)
{
    static const char *const places[] = {"%s/hvd-*",
                                         "/tmp/hvd-*/%d-*",
                                         "/run/user/*/hvd-*/%d-*",
                                         "/sys/fs/cgroup/hvd-%d-*",
                                         "/sys/fs/cgroup/unified/hvd-%d-*",
                                         "/dev/shm/*hvd*%d*"};
    char pattern[PATH_MAX];
    for (size_t i = 0; i < LENGTH(places); i++) {
        glob_t found;
        if (i == 0)
            snprintf(pattern, sizeof pattern, "%s/hvd-*", lane.dir);
        else
            snprintf(pattern, sizeof pattern, places[i], (int)lane.pid);
        if (glob(pattern, 0, NULL, &found) == 0) {
            bad("a file was left: %.400s", found.gl_pathv[0]);
            for (size_t k = 0; k < found.gl_pathc; k++) {
                char *argv[] = {"rm", "-rf", found.gl_pathv[k], NULL};
                pid_t pid = fork();
                if (pid == 0)
                    execv(strstr(argv[2], "cgroup") ? "/bin/rmdir" : "/bin/rm",
                          strstr(argv[2], "cgroup") ? argv + 1 : argv);
                waitpid(pid, NULL, 0);
            }
        }
        globfree(&found);
    }
}

/* All lines of that letter, in order: how many. -1: something else is there, or in another order. */
static int lines_of(const char *text, char letter)
{
    char wanted[LINE_LEN + 8];
    int count = 0;
    for (const char *p = text; *p; p = strchr(p, '\n') + 1) {
        if (!strchr(p, '\n') || !strchr("ioe", *p))
            return -1;
        if (*p != letter)
            continue;
        snprintf(wanted, sizeof wanted, LINE, letter, count);
        if (strncmp(p, wanted, LINE_LEN - 1) != 0)
            return -1;
        count++;
    }
    return count;
}

static const char *read_file(const char *path)
{
    static char bytes[TEXT_MAX];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(bytes, 1, sizeof bytes - 1, f) : 0;
    if (f)
        fclose(f);
    bytes[n] = '\0';
    return bytes;
}

static void check_io(void)
{
    char path[PATH_MAX + 32];
    if (lines_of(lane.out.bytes, 'i') != IN_LINES)
        bad("exit status 0, but lines of %s were lost", "rank 0");
    if (lines_of(lane.out.bytes, 'o') != LINES)
        bad("exit status 0, but lines of %s were lost", "rank 1");
    if (!strstr(lane.err.bytes, "e 00000 abcdefgh\n"))
        bad("exit status 0, but %s was lost", "standard error");
    if (!strstr(lane.err.bytes, "--output-filename: ")) {
        snprintf(path, sizeof path, "%s/rank.0/stdout", lane.files);
        if (lines_of(read_file(path), 'i') != IN_LINES)
            bad("exit status 0, but not all is in %.400s", path);
        snprintf(path, sizeof path, "%s/rank.1/stdout", lane.files);
        if (lines_of(read_file(path), 'o') != LINES)
            bad("exit status 0, but not all is in %.400s", path);
    }
    const char *report = read_file(lane.report);
    size_t len = strlen(report);
    if (!strstr(lane.err.bytes, "--report: ") && (len < 3 || strcmp(report + len - 2, "}\n") != 0))
        bad("exit status 0, but the report is not whole: %.40s", report);
}

/* The losses, without the speed beside them. */
static void keep_losses(struct text *to)
{
    to->len = 0;
    for (const char *p = lane.out.bytes; (p = strstr(p, "loss=")); p += strcspn(p, " \n"))
        to->len += (size_t)snprintf(to->bytes + to->len, 64, "%.*s\n", (int)strcspn(p, " \n"), p);
    to->bytes[to->len] = '\0';
}

static void check_train(void)
{
    static struct text losses;
    keep_losses(&losses);
    if (strcmp(losses.bytes, lane.losses.bytes) != 0)
        bad("exit status 0, but the losses are others: %.400s", losses.bytes);
}

/* A line of hvdrun's that is no hint and no warning. */
static const char *said(void)
{
    for (const char *p = lane.err.bytes; p; p = strchr(p, '\n'), p = p ? p + 1 : NULL)
        if (strncmp(p, "hvdrun: ", 8) == 0 && strncmp(p + 8, "hint", 4) != 0 &&
            strncmp(p + 8, "warning", 7) != 0)
            return p;
    return NULL;
}

/* An interrupted call, one that would wait, and half of what was asked for: the job must succeed. */
static bool is_harmless(const char *kind)
{
    return strstr(kind, "-eintr") || strstr(kind, "-eagain") || strstr(kind, "-short");
}

static void judge(enum job job, bool ended, const char *kind)
{
    static const char *const crashes[] = {"Assertion", "signal 6 ", "signal 11 ",  "SIGABRT",
                                          "SIGSEGV",   "Sanitizer", "double free", "malloc():"};
    char text[64];
    lane.why[0] = '\0';
    if (!ended)
        bad("it still ran after %s s", "10");
    snprintf(text, sizeof text, "%d", WTERMSIG(lane.status));
    if (ended && WIFSIGNALED(lane.status))
        bad("hvdrun was killed by signal %s", text);
    for (size_t i = 0; i < LENGTH(crashes); i++)
        if (strstr(lane.err.bytes, crashes[i]))
            bad("something crashed: %s", crashes[i]);
    check_processes();
    check_files();
    if (lane.why[0])
        return;
    if (WEXITSTATUS(lane.status) != 0 && !said())
        bad("exit status is not 0, and hvdrun %s", "did not say why");
    else if (WEXITSTATUS(lane.status) != 0 && is_harmless(kind))
        bad("exit status is not 0: %s", "what a caller has to bear was not borne");
    else if (WEXITSTATUS(lane.status) != 0 && strcmp(kind, "malloc") == 0 &&
             !strstr(lane.err.bytes, "memory"))
        bad("nobody said that there was no %s", "memory");
    else if (WEXITSTATUS(lane.status) == 0 && job == TRAIN)
        check_train();
    else if (WEXITSTATUS(lane.status) == 0)
        check_io();
}

/* ---- series -------------------------------------------------------------------------------------------- */

struct series {
    enum job job;
    const char *kind, *process;
};

static void print_indented(const char *text, size_t limit)
{
    size_t shown = 0;
    while (*text && shown++ < limit) {
        size_t len = strcspn(text, "\n");
        printf("    # %.*s\n", (int)(len < 200 ? len : 200), text);
        text += len + (text[len] == '\n');
    }
}

static void say_run(const struct series *s, unsigned long n)
{
    const char *line = said();
    const char *where = read_file(lane.mark);
    printf("    # %s %s of %s %lu (%.*s): status %d, %llu ms: %.*s\n", job_names[s->job], s->kind, s->process,
           n, (int)strcspn(where, "\n"), where,
           WIFEXITED(lane.status) ? WEXITSTATUS(lane.status) : 128 + WTERMSIG(lane.status),
           (unsigned long long)lane.took_ms, line ? (int)strcspn(line, "\n") : 0, line ? line : "");
    fflush(stdout);
}

static void count_down(const struct series *s, unsigned step)
{
    unsigned long n = 1, runs = 0, failures = 0;
    const char *only = getenv("AT");
    uint64_t began = now_ms();
    char *text = NULL;
    size_t size = 0;
    FILE *console = stdout;
    stdout = open_memstream(&text, &size);
    if (only)
        n = strtoul(only, NULL, 10);
    for (;; n += step) {
        bool ended;
        run(s->job, s->kind, s->process, n, &ended);
        judge(s->job, ended, s->kind);
        bool met = access(lane.mark, F_OK) == 0;
        runs += met;
        if (getenv("VERBOSE"))
            say_run(s, n);
        if (lane.why[0]) {
            failures++;
            printf("    # %s %s of %s, call %lu: %s\n", job_names[s->job], s->kind, s->process, n, lane.why);
            print_indented(read_file(lane.mark), 14);
            print_indented(lane.err.bytes, 8);
        }
        if (!met || only)
            break;
    }
    fclose(stdout);
    stdout = console;
    printf("%s - countdown: %s, %s of %s (%lu calls, %lu failures, %.1f s)\n%s", failures ? "not ok" : "ok",
           job_names[s->job], s->kind, s->process, runs, failures, (double)(now_ms() - began) / 1e3, text);
    fflush(stdout);
    free(text);
    lane.failed |= failures > 0;
}

static bool is_wanted(const struct series *s, char *const *word)
{
    char name[128];
    snprintf(name, sizeof name, "%s, %s of %s", job_names[s->job], s->kind, s->process);
    if (s->job == IO && strcmp(s->process, "engine") == 0)
        return false; /* it has none */
    if (s->job == SSH && (!getenv("COUNTDOWN_REACH") || strcmp(s->process, "hvdrun") != 0))
        return false;
    for (size_t i = 0; word[i]; i++)
        if (strstr(name, word[i]))
            return true;
    return !word[0];
}

static void open_lane(unsigned number)
{
    bool ended;
    const char *base = getenv("TMPDIR"); /* our caller removes it */
    snprintf(lane.dir, sizeof lane.dir, "%s/countdown.XXXXXX", base ? base : build);
    if (!mkdtemp(lane.dir))
        die(lane.dir);
    snprintf(lane.mark, sizeof lane.mark, "%s/mark", lane.dir);
    snprintf(lane.report, sizeof lane.report, "%s/report", lane.dir);
    snprintf(lane.files, sizeof lane.files, "%s/files", lane.dir);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    run(TRAIN, "malloc", "nobody", 1, &ended);
    keep_losses(&lane.losses);
    lane.failed = lane.status != 0 || lane.losses.len == 0;
    if (lane.failed)
        printf("not ok - countdown: lane %u cannot even train:\n%s", number, lane.err.bytes);
}

static int run_lane(unsigned number, unsigned lanes, unsigned step, char *const *words)
{
    unsigned k = 0;
    for (int i = 0; i < IN_LINES; i++)
        lane.in.len += (size_t)snprintf(lane.in.bytes + lane.in.len, 64, LINE, 'i', i);
    open_lane(number);
    for (size_t kind = 0; kind < LENGTH(kinds); kind++)
        for (size_t p = 0; p < LENGTH(processes); p++)
            for (enum job job = IO; job <= SSH; job++) {
                struct series s = {job, kinds[kind], processes[p]};
                if (is_wanted(&s, words) && k++ % lanes == number)
                    count_down(&s, step);
            }
    remove_files();
    rmdir(lane.dir);
    return lane.failed;
}

/* Waits for all lanes; a lane that ended in another way than with its lines is a failure, too. */
static int end_lanes(void)
{
    int status, failed = 0;
    while (wait(&status) > 0) {
        failed |= status != 0;
        if (!WIFEXITED(status))
            printf("not ok - countdown: a lane was ended by signal %d\n", WTERMSIG(status));
    }
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return worker();
    if (argc < 4) {
        fprintf(stderr, "usage: countdown-run BUILD STEP LANES [WORD]...\n");
        return 2;
    }
    build = realpath(argv[1], NULL);
    unsigned step = (unsigned)strtoul(argv[2], NULL, 10), lanes = (unsigned)strtoul(argv[3], NULL, 10);
    if (!build || step == 0 || lanes == 0)
        die("what it was told");
    for (unsigned i = 0; i < lanes; i++)
        if (fork() == 0)
            return run_lane(i, lanes, step, argv + 4);
    return end_lanes();
}
