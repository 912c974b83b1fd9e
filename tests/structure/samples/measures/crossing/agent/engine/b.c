void engine_end(void)
{
    engine_stop();
}
