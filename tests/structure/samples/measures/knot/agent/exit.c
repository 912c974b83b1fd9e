void agent_exit(int status)
{
    job_failed(status);
}
