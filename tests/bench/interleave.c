/* interleave - times whole commands against each other, from just before the start of the process to its end.
 *
 *   interleave ROUNDS[:SECONDS] TIMEOUT_S -- LABEL COMMAND ARG ... [-- LABEL COMMAND ARG ...] ...
 *
 * A round runs every command once, beginning with another one each time: what disturbs the machine disturbs
 * all of them alike. One line per label: label, median, min and max in milliseconds, good runs, failed runs,
 * runs that were ended at TIMEOUT_S, and two medians of processor time, which a busy machine changes least:
 * of the command with all that it waited for, and of its process alone. A command that hung three times is
 * not run again. After SECONDS no round begins, but for the first FEWEST. Exit 1 when a command never
 * succeeded. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COMMANDS_MAX 8
#define ROUNDS_MAX   1000
#define HANGS_MAX    3
#define FEWEST       3

extern char **environ;

struct command {
    const char *label;
    char **argv;
    double ms[ROUNDS_MAX], cpu_ms[ROUNDS_MAX], own_ms[ROUNDS_MAX];
    int good, failed, hung;
};

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* In a process group of its own, so that it can be ended with what it started; its output goes nowhere. */
static int start(char **argv, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    int status;

    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
    status = posix_spawnp(pid, argv[0], &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return status;
}

static int ended_within(int pidfd, int ms)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int n;

    do
        n = poll(&p, 1, ms);
    while (n < 0 && errno == EINTR);
    return n == 1;
}

/* Of a process that has ended and was not waited for: its first thread's. */
static double own_cpu_ms(pid_t pid)
{
    unsigned long long ns = 0;
    char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)pid);
    f = fopen(path, "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%llu", &ns) != 1)
        ns = 0;
    fclose(f);
    return (double)ns * 1e-6;
}

static void run(struct command *c, int timeout_ms)
{
    const double before = now_ms();
    int hung = 0, status, pidfd;
    struct rusage used;
    double own_ms;
    pid_t pid;

    if (start(c->argv, &pid) != 0) {
        c->failed++;
        return;
    }
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (!ended_within(pidfd, timeout_ms)) {
        hung = 1;
        kill(pid, SIGTERM); /* a launcher that can still end its job should */
        ended_within(pidfd, 2000);
        kill(-pid, SIGKILL);
    }
    close(pidfd);
    own_ms = own_cpu_ms(pid);
    wait4(pid, &status, 0, &used);
    if (hung) {
        c->hung++;
    } else if (status != 0) {
        c->failed++;
    } else {
        c->cpu_ms[c->good] = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e3 +
                             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-3;
        c->own_ms[c->good] = own_ms;
        c->ms[c->good++] = now_ms() - before;
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts; 0 when there is none. */
static double median(double *value, int n)
{
    qsort(value, (size_t)n, sizeof *value, compare);
    return n == 0 ? 0 : n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static int report(struct command *c)
{
    const int n = c->good;
    const double ms = median(c->ms, n);

    printf("%s %.3f %.3f %.3f %d %d %d %.3f %.3f\n", c->label, ms, n > 0 ? c->ms[0] : 0,
           n > 0 ? c->ms[n - 1] : 0, n, c->failed, c->hung, median(c->cpu_ms, n), median(c->own_ms, n));
    return n > 0;
}

static int parse(int argc, char **argv, struct command *command)
{
    int commands = 0;

    for (int i = 3; i < argc; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        argv[i] = NULL; /* ends the command before it */
        if (i + 2 >= argc || commands == COMMANDS_MAX)
            return -1;
        command[commands].label = argv[i + 1];
        command[commands++].argv = argv + i + 2;
    }
    return commands;
}

int main(int argc, char **argv)
{
    static struct command command[COMMANDS_MAX];
    char *end = "";
    const long rounds = argc > 3 ? strtol(argv[1], &end, 10) : 0;
    const long seconds = *end == ':' ? strtol(end + 1, &end, 10) : 3600;
    const long timeout = argc > 3 ? strtol(argv[2], NULL, 10) : 0;
    const int commands = parse(argc, argv, command);
    const double begun = now_ms();
    int all = 1;

    if (rounds < 1 || rounds > ROUNDS_MAX || seconds < 1 || *end != '\0' || timeout < 1 || timeout > 3600 ||
        commands < 1) {
        fprintf(stderr,
                "usage: interleave ROUNDS[:SECONDS] TIMEOUT_S -- LABEL COMMAND ARG ... [-- LABEL ...] (at "
                "most %d)\n",
                COMMANDS_MAX);
        return 2;
    }
    for (long round = 0; round < rounds && (round < FEWEST || now_ms() - begun < (double)seconds * 1e3);
         round++)
        for (int i = 0; i < commands; i++) {
            struct command *c = &command[(round + i) % commands];

            if (c->hung < HANGS_MAX)
                run(c, (int)timeout * 1000);
        }
    for (int i = 0; i < commands; i++)
        all &= report(&command[i]);
    return all ? 0 : 1;
}
