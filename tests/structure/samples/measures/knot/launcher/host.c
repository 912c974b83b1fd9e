static int plan_is_good(void)
{
    return 1;
}

void host_start(const char *name)
{
    log_line("host_start(");
    if (!plan_is_good())
        job_failed(1);
    else if (name)
        job_failed(2);
}
