/* hvd-engine: one process per job and host, started by its session with their socket as descriptor 3.
 *
 * It ends when the session's end of the socket is closed, and takes nothing with it: the region and the
 * segments vanish with the last process that maps them. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/log.h"
#include "common/process/spawn.h"

#define SESSION_FD 3

int main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    log_init("hvd-engine", LOG_WARNING);
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("hvd-engine %s\n", HVD_VERSION);
        return 0;
    }
    if (argc != 1) {
        fprintf(stderr, "hvd-engine is started by hvdagent and takes no arguments\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ,
           SIG_IGN); /* memory beyond the limit on the size of files cannot be made: said, not killed */
    prctl(PR_SET_NAME, "hvd-engine");
    spawn_raise_descriptor_limit(RLIM_INFINITY); /* each rank and each segment is one */
    struct engine *engine = engine_new(SESSION_FD, &e);
    int rc = engine ? engine_loop(engine, &e) : -1;
    if (rc != 0)
        log_error("%s", e.text);
    engine_free(engine);
    return rc == 0 ? 0 : err_exit_status(&e);
}
