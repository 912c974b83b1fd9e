void report_write(void)
{
}

static void report_open(void)
{
}

int main(void)
{
}
