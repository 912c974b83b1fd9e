/* The worker of the tests of output and input:
 *
 *   scribe write DIR BYTES        as rank $HOROVOD_RANK: numbered lines to stdout as fast as they go, in
 *                                 pieces that do not end where lines do; BYTES 0: until it is killed. The
 *                                 bytes in the pipe are counted in DIR/written.RANK at any moment, also after
 *                                 a SIGKILL.
 *   scribe check DIR              reads what hvdrun showed: every line whole, in its rank's order, and at
 *                                 least what each written.RANK says. Only the last line of a rank may be cut.
 *   scribe read RATE SECONDS      copies stdin to stdout, RATE bytes a second with pauses for that long, then
 *                                 without any
 *   scribe peak FILE COMMAND ...  runs the command, and leaves its peak memory in KiB in FILE; ends as the
 *                                 command does
 *
 * Exit 1 and a sentence when something is not as it must be. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_ 4096
#define RANKS_MAX 4096

static int fail(const char *what, const char *which)
{
    fprintf(stderr, "scribe: %s: %s\n", what, which);
    return 1;
}

/* The line number `n` of a rank. Returns its length with the newline. */
static size_t make_line(char *out, unsigned rank, unsigned long n)
{
    uint32_t mixed = (uint32_t)(rank * 2654435761u) ^ (uint32_t)(n * 40503u);
    size_t fill = n % 101 == 100 ? 3000 : (mixed >> 7) % 180;
    int at = snprintf(out, 64, "<%u:%lu:", rank, n);
    for (size_t i = 0; i < fill; i++)
        out[at++] = (char)('a' + (mixed + i) % 26);
    out[at++] = '>';
    out[at++] = '\n';
    return (size_t)at;
}

static int write_lines(const char *dir, unsigned long long bytes)
{
    const char *rank_text = getenv("HOROVOD_RANK");
    unsigned rank = (unsigned)strtoul(rank_text ? rank_text : "0", NULL, 10);
    char path[4096], text[65536 + LINE_MAX_];
    size_t len = 0;
    snprintf(path, sizeof path, "%s/written.%u", dir, rank);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(uint64_t)) < 0)
        return fail(path, strerror(errno));
    volatile uint64_t *written = mmap(NULL, sizeof *written, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (written == MAP_FAILED)
        return fail(path, strerror(errno));
    for (unsigned long n = 0; len > 0 || bytes == 0 || *written < bytes;) {
        while (len < 32768 && (bytes == 0 || *written + len < bytes))
            len += make_line(text + len, rank, n++);
        size_t piece = 1 + (size_t)(*written * 7919 % 20011);
        ssize_t done = write(STDOUT_FILENO, text, piece < len ? piece : len);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail("stdout", strerror(errno));
        *written += (uint64_t)done;
        memmove(text, text + done, len - (size_t)done);
        len -= (size_t)done;
    }
    return 0;
}

struct seen {
    unsigned long next;
    uint64_t bytes;
    int cut; /* its last line was not whole */
};

/* `line` has its newline, unless it is the last of the input. */
static int check_line(struct seen *seen, const char *line, size_t len, uint64_t *strays)
{
    static char wanted[LINE_MAX_];
    char *rest;
    unsigned long rank = line[0] == '<' ? strtoul(line + 1, &rest, 10) : RANKS_MAX;
    size_t digits = line[0] == '<' ? strspn(line + 1, "0123456789") : 0;
    if (line[0] == '<' && digits < 5 && 1 + digits >= len - (line[len - 1] == '\n')) {
        *strays += 1 + digits; /* cut before it said whose it is */
        return 0;
    }
    if (rank >= RANKS_MAX || *rest != ':')
        return fail("a line of nobody", line);
    struct seen *s = &seen[rank];
    size_t whole = make_line(wanted, (unsigned)rank, s->next);
    if (s->cut)
        return fail("a line after one that was cut", line);
    if (len != whole || memcmp(line, wanted, len) != 0) {
        size_t got = line[len - 1] == '\n' ? len - 1 : len; /* that newline ended a cut line */
        if (got >= whole || memcmp(line, wanted, got) != 0)
            return fail("not the line that is due", line);
        s->cut = 1;
        len = got;
    }
    s->next++;
    s->bytes += len;
    return 0;
}

static int check(const char *dir)
{
    static struct seen seen[RANKS_MAX];
    char *line = NULL, path[4096];
    size_t size = 0;
    ssize_t len;
    int ranks = 0, cut = 0;
    uint64_t total = 0, strays = 0;
    while ((len = getline(&line, &size, stdin)) > 0)
        if (check_line(seen, line, (size_t)len, &strays) != 0)
            return 1;
    free(line);
    for (int rank = 0; rank < RANKS_MAX; rank++) {
        uint64_t written;
        snprintf(path, sizeof path, "%s/written.%d", dir, rank);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            continue;
        if (read(fd, &written, sizeof written) != (ssize_t)sizeof written ||
            seen[rank].bytes + strays < written)
            return fail("bytes were lost of", path);
        strays -= seen[rank].bytes < written ? written - seen[rank].bytes : 0;
        close(fd);
        ranks++;
        cut += seen[rank].cut;
        total += seen[rank].bytes;
    }
    printf("%d ranks, %llu bytes, %d cut\n", ranks, (unsigned long long)total, cut);
    return ranks > 0 ? 0 : fail(dir, "nobody has written");
}

static int read_slowly(size_t rate, double seconds)
{
    static char bytes[65536];
    struct timespec began, now,
        nap = {0, 250000000}; /* a quarter's bytes at once, then nothing for that long */
    size_t quarter = 0;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) {
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? fail("stdin", strerror(errno)) : 0;
        for (ssize_t at = 0, done; at < n; at += done)
            if ((done = write(STDOUT_FILENO, bytes + at, (size_t)(n - at))) < 0)
                return fail("stdout", strerror(errno));
        quarter += (size_t)n;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if ((double)(now.tv_sec - began.tv_sec) < seconds && quarter >= rate / 4) {
            nanosleep(&nap, NULL);
            quarter = 0;
        }
    }
}

static int peak(const char *file, char **command)
{
    int status;
    struct rusage used;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(command[0], command);
        _exit(127);
    }
    if (pid < 0 || wait4(pid, &status, 0, &used) < 0)
        return fail(command[0], strerror(errno));
    FILE *f = fopen(file, "w");
    if (!f || fprintf(f, "%ld\n", used.ru_maxrss) < 0 || fclose(f) != 0)
        return fail(file, strerror(errno));
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "write") == 0 && argc == 4)
        return write_lines(argv[2], strtoull(argv[3], NULL, 10));
    if (strcmp(what, "check") == 0 && argc == 3)
        return check(argv[2]);
    if (strcmp(what, "read") == 0 && argc == 4)
        return read_slowly(strtoul(argv[2], NULL, 10), strtod(argv[3], NULL));
    if (strcmp(what, "peak") == 0 && argc > 3)
        return peak(argv[2], argv + 3);
    fprintf(stderr, "scribe: see its source for what it does\n");
    return 2;
}
