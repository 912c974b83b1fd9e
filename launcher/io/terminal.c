#include "launcher/io/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static struct {
    struct termios before;
    bool raw;
} terminal;

void terminal_make_raw(void)
{
    struct termios raw;
    if (terminal.raw || tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &terminal.before) < 0)
        return;
    raw = terminal.before;
    cfmakeraw(&raw);
    terminal.raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

/* From the background it would stop us: then the shell has set the terminal as it needs it. */
void terminal_restore(void)
{
    if (terminal.raw && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &terminal.before);
    terminal.raw = false;
}

bool terminal_is_raw(void)
{
    return terminal.raw;
}

void terminal_size(Hvd__Window *size)
{
    struct winsize w = {0};
    int fd = isatty(STDIN_FILENO) ? STDIN_FILENO : STDOUT_FILENO;
    if (ioctl(fd, TIOCGWINSZ, &w) < 0 || w.ws_row == 0 || w.ws_col == 0)
        w = (struct winsize){.ws_row = 24, .ws_col = 80};
    size->rows = w.ws_row;
    size->columns = w.ws_col;
    size->x_pixels = w.ws_xpixel;
    size->y_pixels = w.ws_ypixel;
}
