/* line_delay write | line_delay read LINES - how long a line takes from a worker to the launcher's reader.
 *
 * `write` prints the time and ends; `read` takes that from its stdin, LINES times, and prints in milliseconds
 * how long the first one, the median and the slowest were on their way. One machine, so one clock. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINES_MAX 4096
#define ROOM      65536

static int64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static int write_one(void)
{
    char line[32];
    const int n = snprintf(line, sizeof line, "%" PRId64 "\n", now_ns());

    return write(STDOUT_FILENO, line, (size_t)n) == n ? 0 : 1;
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Every line that a read brings arrived when the read returned. */
static int read_all(int wanted, int64_t *took)
{
    static char text[ROOM];
    size_t held = 0;
    int lines = 0;

    while (lines < wanted) {
        const ssize_t n = read(STDIN_FILENO, text + held, sizeof text - held);
        const int64_t now = now_ns();
        char *at = text, *end;

        if (n <= 0)
            break;
        held += (size_t)n;
        while (lines < wanted && (end = memchr(at, '\n', held - (size_t)(at - text))) != NULL) {
            *end = '\0';
            took[lines++] = now - strtoll(at, NULL, 10);
            at = end + 1;
        }
        held -= (size_t)(at - text);
        memmove(text, at, held);
    }
    return lines;
}

int main(int argc, char **argv)
{
    static int64_t took[LINES_MAX];
    const long wanted = argc == 3 && strcmp(argv[1], "read") == 0 ? strtol(argv[2], NULL, 10) : 0;
    int64_t first;
    int lines;

    if (argc == 2 && strcmp(argv[1], "write") == 0)
        return write_one();
    if (wanted < 1 || wanted > LINES_MAX) {
        fprintf(stderr, "usage: line_delay write | line_delay read LINES (1 to %d)\n", LINES_MAX);
        return 2;
    }
    lines = read_all((int)wanted, took);
    if (lines < wanted) {
        fprintf(stderr, "line_delay: %d lines of %ld came\n", lines, wanted);
        return 1;
    }
    first = took[0];
    qsort(took, (size_t)lines, sizeof *took, compare);
    printf("%.2f %.2f %.2f\n", (double)first / 1e6, (double)took[lines / 2] / 1e6,
           (double)took[lines - 1] / 1e6);
    return 0;
}
