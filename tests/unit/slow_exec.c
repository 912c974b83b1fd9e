/* Preloaded into an agent: each program takes 20 ms to execute. */
#include <dlfcn.h>
#include <unistd.h>

typedef int exec_fn(const char *path, char *const argv[], char *const envp[]);

int execve(const char *path, char *const argv[], char *const envp[]);
int execve(const char *path, char *const argv[], char *const envp[])
{
    exec_fn *next = (exec_fn *)dlsym(RTLD_NEXT, "execve");
    usleep(20000);
    return next(path, argv, envp);
}
