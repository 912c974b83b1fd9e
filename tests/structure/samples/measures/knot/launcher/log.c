void log_line(const char *text)
{
    if (!text)
        job_failed(3);
}
