/* spawn_floor N COMMAND ARG ... - the least that starting N local processes takes: N spawns, N waits, nothing
 * else. */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
    const long n = argc > 2 ? strtol(argv[1], NULL, 10) : 0;
    int failed = 0;

    if (n < 1 || n > 100000) {
        fprintf(stderr, "usage: spawn_floor N COMMAND ARG ...\n");
        return 2;
    }
    for (long i = 0; i < n; i++) {
        pid_t pid;

        if (posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ) != 0) {
            fprintf(stderr, "spawn_floor: cannot start %s\n", argv[2]);
            return 1;
        }
    }
    for (long i = 0; i < n; i++) {
        int status = 0;

        wait(&status);
        failed |= status != 0;
    }
    return failed;
}
