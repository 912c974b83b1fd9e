#define job_exit(status) plan_end(status)
void job_run(void);
void job_failed(int status);
static inline void job_look(void)
{
    plan_make();
}
