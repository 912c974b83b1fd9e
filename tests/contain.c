/* Runs a command and outlives everything that it starts.
 *
 *   contain SECONDS GRACE COMMAND [ARGUMENT]...
 *
 * The command is in a session of its own, and we are the subreaper: whatever it leaves becomes our child.
 * When it has ended, we wait until all else has ended too. We end it after SECONDS (0: never), at SIGINT,
 * SIGTERM, SIGHUP or SIGQUIT, and when our parent dies. SIGTERM then goes to its process group. Processes
 * that are there after GRACE seconds get SIGKILL: from the leaves up, so that each process may clear away
 * what its child has left, and at last all at once.
 *
 * The exit status is that of the command, or 128 + N when signal N ended it or us, 124 when its time was up,
 * 125 for an error of ours. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEFT_MS    2000  /* for what a command that ended by itself has left */
#define LOOK_MS    100   /* between two looks at what is there */
#define LEAVES_MS  3000  /* leaves alone get SIGKILL for so long */
#define GIVE_UP_MS 15000 /* a process in the kernel's hands may stay */

struct process {
    pid_t pid, parent;
    bool ours, has_child;
};
static struct process *processes;
static size_t count, room;

static pid_t command;
static bool command_ended;
static int command_status;
static sigset_t taken;

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void die(const char *what)
{
    fprintf(stderr, "contain: %s: %s\n", what, strerror(errno));
    exit(125);
}

/* ---- the processes below us ---------------------------------------------------------------------------- */

/* 0 for a process that has ended. */
static pid_t read_parent(pid_t pid)
{
    char path[64], text[512], state;
    int parent = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name || sscanf(after_name + 1, " %c %d", &state, &parent) != 2 || state == 'Z' || state == 'X')
        return 0;
    return parent;
}

static void add_process(pid_t pid)
{
    pid_t parent = read_parent(pid);

    if (parent == 0)
        return;
    if (count == room) {
        room = room ? 2 * room : 1024;
        processes = realloc(processes, room * sizeof *processes);
        if (!processes)
            die("memory");
    }
    processes[count++] = (struct process){.pid = pid, .parent = parent};
}

static struct process *find_process(pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (processes[i].pid == pid)
            return &processes[i];
    return NULL;
}

/* One generation more of those below us; false when there is none. */
static bool mark_children(void)
{
    bool more = false;

    for (size_t i = 0; i < count; i++) {
        struct process *p = &processes[i], *parent = find_process(p->parent);
        if (p->ours || (p->parent != getpid() && (!parent || !parent->ours)))
            continue;
        p->ours = more = true;
        if (parent)
            parent->has_child = true;
    }
    return more;
}

/* Reads who is below us, in processes[]; how many they are. */
static size_t find_descendants(void)
{
    size_t found = 0;
    DIR *dir = opendir("/proc");

    if (!dir)
        die("/proc");
    count = 0;
    for (struct dirent *entry; (entry = readdir(dir));)
        if (isdigit((unsigned char)entry->d_name[0]))
            add_process((pid_t)strtol(entry->d_name, NULL, 10));
    closedir(dir);
    while (mark_children())
        ;
    for (size_t i = 0; i < count; i++)
        found += processes[i].ours;
    return found;
}

/* The descriptor holds on to the process, so that no other one with its number can be meant. */
static void kill_process(const struct process *p)
{
    int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

    if (fd < 0)
        return;
    if (read_parent(p->pid) == p->parent)
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
    close(fd);
}

static void say_who_is_left(const char *what)
{
    for (size_t i = 0; i < count; i++) {
        char path[64], name[64] = "";
        if (!processes[i].ours)
            continue;
        snprintf(path, sizeof path, "/proc/%d/comm", (int)processes[i].pid);
        FILE *f = fopen(path, "re");
        if (f && fgets(name, sizeof name, f))
            name[strcspn(name, "\n")] = '\0';
        if (f)
            fclose(f);
        fprintf(stderr, "contain: %s: %d %s\n", what, (int)processes[i].pid, name);
    }
}

/* ---- waiting and ending -------------------------------------------------------------------------------- */

/* False when nobody is left. */
static bool reap_children(void)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid != command)
            continue;
        command_ended = true;
        command_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    return pid == 0;
}

/* Until a signal comes; 0 when none has come until then. */
static int await_signal(uint64_t until)
{
    uint64_t now = now_ms(), ms = until > now ? until - now : 0;
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    int number = sigtimedwait(&taken, NULL, until == 0 ? &(struct timespec){3600, 0} : &t);

    return number > 0 ? number : 0;
}

/* Until the command has ended, and then 0; else the signal that asks us to end it, or SIGALRM when its time
 * is up. */
static int await_command(uint64_t until)
{
    while (!command_ended) {
        int number = await_signal(until);
        if (number == SIGCHLD)
            reap_children();
        else if (number != 0)
            return number;
        else if (until != 0 && now_ms() >= until)
            return SIGALRM;
    }
    return 0;
}

static void end_the_rest(uint64_t grace_ms, bool was_asked)
{
    uint64_t began = now_ms(), leaves = began + grace_ms, all = leaves + LEAVES_MS;
    bool said = false;

    while (reap_children()) {
        uint64_t now = now_ms();
        if (now <
            leaves) { /* a child of a child ends without a signal for us, but then its parent ends too */
            await_signal(leaves);
            continue;
        }
        if (find_descendants() > 0 && !said && !was_asked)
            say_who_is_left("still there, ended");
        said = true;
        if (now >= began + grace_ms + GIVE_UP_MS) {
            say_who_is_left("cannot be ended");
            return;
        }
        for (size_t i = 0; i < count; i++)
            if (processes[i].ours && (!processes[i].has_child || now >= all))
                kill_process(&processes[i]);
        await_signal(now + LOOK_MS);
    }
}

static void start_command(char **argv)
{
    sigset_t before;

    sigprocmask(SIG_BLOCK, &taken, &before);
    command = fork();
    if (command < 0)
        die("fork");
    if (command > 0)
        return;
    (void)setsid();
    sigprocmask(SIG_SETMASK, &before, NULL);
    execvp(argv[0], argv);
    fprintf(stderr, "contain: %s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

/* Signals that were ignored when we started (nohup) stay ignored. */
static void choose_signals(void)
{
    static const int enders[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action;

    sigemptyset(&taken);
    sigaddset(&taken, SIGCHLD);
    for (size_t i = 0; i < sizeof enders / sizeof *enders; i++)
        if (sigaction(enders[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&taken, enders[i]);
}

int main(int argc, char **argv)
{
    uint64_t limit_ms, grace_ms;

    if (argc < 4) {
        fprintf(stderr, "usage: contain SECONDS GRACE COMMAND [ARGUMENT]...\n");
        return 125;
    }
    limit_ms = strtoul(argv[1], NULL, 10) * 1000;
    grace_ms = strtoul(argv[2], NULL, 10) * 1000;
    choose_signals();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    start_command(argv + 3);
    int asked = await_command(limit_ms ? now_ms() + limit_ms : 0);
    /* Between fork and setsid there is no such group yet, and then only the process. */
    if (asked && kill(-command, SIGTERM) < 0)
        kill(command, SIGTERM);
    if (asked)
        kill(-command, SIGCONT); /* a test may have stopped one of them */
    end_the_rest(asked ? grace_ms : LEFT_MS, asked != 0);
    if (asked)
        return asked == SIGALRM ? 124 : 128 + asked;
    return command_status;
}
