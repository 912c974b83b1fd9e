/* The knot: job -> host -> log -> job. job_failed() moved into a file of its own would open it. */
#include "launcher/job.h"

void job_failed(int status)
{
    job_exit(status);
}

void job_run(void)
{
    host_start("a");
    host_start("b");
}
