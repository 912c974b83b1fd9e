/* Preloaded into an agent. The child that is about to become a worker stops there and says so in a file, so
 * that a fault meets the agent while it spawns: HOLD_FILE names that file; once it exists nothing is held any
 * more. The guard, which is the process that was executed, takes so long to end: HOLD_GUARD_MS. */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int exec_fn(const char *path, char *const argv[], char *const envp[]);

static void hold(const char *path)
{
    const char *file = getenv("HOLD_FILE");
    size_t length = strlen(path);
    if (!file || length < 13 || strcmp(path + length - 13, "/fault-worker") != 0)
        return;
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (fd < 0)
        return;
    close(fd);
    kill(getpid(), SIGSTOP); /* raise() may name the thread whose memory this child shares */
}

static pid_t executed;

__attribute__((constructor)) static void remember_process(void)
{
    executed = getpid();
}

__attribute__((destructor)) static void hold_guard(void)
{
    const char *ms = getenv("HOLD_GUARD_MS");
    if (ms && getpid() == executed)
        usleep((useconds_t)strtoul(ms, NULL, 10) * 1000);
}

int execve(const char *path, char *const argv[], char *const envp[]);
int execve(const char *path, char *const argv[], char *const envp[])
{
    exec_fn *next = (exec_fn *)dlsym(RTLD_NEXT, "execve");
    hold(path);
    return next(path, argv, envp);
}
