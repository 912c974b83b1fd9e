void engine_stop(void)
{
    engine_end();
}
