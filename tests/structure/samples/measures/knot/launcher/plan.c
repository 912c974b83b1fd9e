/* No part of the knot: it gives a function to another file, calls a member, and is called by the header of the job. */
struct plan_events {
    void (*job_run)(void);
};

int plan_is_good(void)
{
    return 0;
}

void plan_make(const struct plan_events *events)
{
    host_watch(job_run);
    events->job_run();
    /* job_run(); */
}
