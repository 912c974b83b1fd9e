void part_stop(int frame)
{
    session_send(frame);
    engine_stop();
}
