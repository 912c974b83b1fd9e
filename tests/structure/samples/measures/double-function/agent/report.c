#ifdef HVD_HWLOC
void report_open(void)
{
}
#else
void report_open(void)
{
}
#endif
