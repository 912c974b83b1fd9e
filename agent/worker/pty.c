#include "agent/worker/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define END_OF_INPUT 4 /* ^D, where the terminal does not say */

static int open_slave(int master)
{
    struct termios t;
    int fd = unlockpt(master) == 0 ? ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (fd < 0 || tcgetattr(fd, &t) < 0)
        return fd;
    t.c_iflag |= IUTF8; /* one backspace takes one character */
    (void)tcsetattr(fd, TCSANOW, &t);
    return fd;
}

int pty_open(int *master, int *slave, const Hvd__Window *size, struct err *e)
{
    *master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    *slave = *master < 0 ? -1 : open_slave(*master);
    if (*slave < 0) {
        int saved = errno;
        if (*master >= 0)
            close(*master);
        *master = -1;
        return err_sys(e, saved, "cannot make a pseudo terminal");
    }
    pty_resize(*master, size);
    return 0;
}

void pty_resize(int master, const Hvd__Window *size)
{
    struct winsize w = {.ws_row = (unsigned short)size->rows,
                        .ws_col = (unsigned short)size->columns,
                        .ws_xpixel = (unsigned short)size->x_pixels,
                        .ws_ypixel = (unsigned short)size->y_pixels};
    (void)ioctl(master, TIOCSWINSZ, &w);
}

size_t pty_end_of_input(int master, bool begun, uint8_t out[PTY_END_MAX])
{
    struct termios t;
    uint8_t end = tcgetattr(master, &t) == 0 && t.c_cc[VEOF] ? t.c_cc[VEOF] : END_OF_INPUT;
    out[0] = out[1] = end; /* the first one only ends a line that is begun */
    return begun ? 2 : 1;
}
