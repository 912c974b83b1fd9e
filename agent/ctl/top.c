/* hvdctl top: all jobs and their ranks, again and again. On a terminal the output fills the screen, follows
 * its size, and ends with q. */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "agent/ctl/commands.h"
#include "agent/ctl/looks.h"
#include "agent/ctl/show.h"
#include "common/base/clock.h"

#define ENDLESS 1000 /* lines and columns where there is no screen */

static struct {
    bool is, keys; /* stdout is a terminal; stdin is one, whose keys come at once */
    struct termios before;
    struct show_screen size;
} screen;
static volatile sig_atomic_t resized, ended;

static void note_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        ended = number;
}

static void measure_screen(void)
{
    struct winsize w;
    bool known = screen.is && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 4 && w.ws_col > 20;
    screen.size.lines = known ? w.ws_row - 1 : ENDLESS;
    screen.size.columns = known ? w.ws_col : ENDLESS;
    resized = 0;
}

static void open_screen(const struct ctl_config *c)
{
    struct sigaction act = {.sa_handler = note_signal};
    screen.is = isatty(STDOUT_FILENO) && !c->json;
    screen.keys = screen.is && tcgetattr(STDIN_FILENO, &screen.before) == 0;
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    screen.size.colours = screen.is && !(no_color && *no_color) && !(term && strcmp(term, "dumb") == 0);
    measure_screen();
    if (!screen.is)
        return;
    sigaction(SIGWINCH, &act, NULL);
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    if (!screen.keys)
        return;
    struct termios now = screen.before;
    now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &now);
}

static void close_screen(void)
{
    if (screen.keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &screen.before);
}

/* The bytes of a line that fit: sequences for colours take no columns. */
static int cut_line(const char *line, size_t len, int columns)
{
    size_t n = 0;
    for (int used = 0; n < len; n++) {
        if (line[n] == '\033')
            while (n < len && line[n] != 'm')
                n++;
        else if (used++ == columns)
            break;
    }
    return (int)n;
}

/* No line is wider than the screen, and there are no more lines. */
static void print_cut(const char *text)
{
    fputs("\033[H\033[2J", stdout);
    for (int line = 0; *text && line < screen.size.lines; line++) {
        size_t n = strcspn(text, "\n");
        printf("%.*s%s\n", cut_line(text, n, screen.size.columns), text,
               memchr(text, '\033', n) ? "\033[0m" : "");
        text += n + (text[n] == '\n');
    }
}

static void print_look(const struct ctl_config *c, const struct ctl_look *l)
{
    char *text = NULL;
    size_t size;
    FILE *out = screen.is ? open_memstream(&text, &size) : NULL;
    if (c->json)
        show_jobs_json(stdout, l->seen, l->count);
    else
        show_top(out ? out : stdout, l->seen, l->count, &screen.size);
    if (out && fclose(out) == 0)
        print_cut(text);
    free(text);
}

/* true: the user has had enough. */
static bool read_keys(void)
{
    char keys[64];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0)
        screen.keys = false;
    return n > 0 && memchr(keys, 'q', (size_t)n);
}

/* Until the next look is due. false: the user has had enough. */
static bool wait_for_next(const struct ctl_config *c, const struct ctl_look *l)
{
    uint64_t until = clock_now() + (uint64_t)c->interval_ms * NSEC_PER_MSEC;
    for (uint64_t now; (now = clock_now()) < until && !ended;) {
        struct pollfd keys = {.fd = screen.keys ? STDIN_FILENO : -1, .events = POLLIN};
        if (poll(&keys, 1, (int)((until - now) / NSEC_PER_MSEC) + 1) > 0 && read_keys())
            return false;
        if (!resized)
            continue;
        measure_screen();
        print_look(c, l);
        fflush(stdout);
    }
    return !ended;
}

int ctl_top(const struct ctl_config *c, struct err *e)
{
    struct ctl_look before = {.seen = NULL}, now;
    open_screen(c);
    for (int64_t i = 0; c->count == 0 || i < c->count; i++) {
        if ((i > 0 && !wait_for_next(c, &before)) || ctl_look(&now, CTL_HVDRUNS, e) < 0)
            break;
        ctl_look_compare(&now, i > 0 ? &before : NULL);
        print_look(c, &now);
        ctl_look_free(&before);
        before = now;
        if (fflush(stdout) != 0)
            break;
    }
    close_screen();
    ctl_look_free(&before);
    return e->code ? EXIT_REFUSED : ended ? 128 + ended : 0;
}
