void session_send(int frame)
{
    part_stop(frame);
}
