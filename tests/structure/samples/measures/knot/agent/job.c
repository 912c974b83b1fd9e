/* Another program's function of the same name. */
void job_failed(int status)
{
    agent_exit(status);
}
