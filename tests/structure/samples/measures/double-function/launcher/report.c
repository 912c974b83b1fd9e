void report_write(void)
{
}

int main(void)
{
}
