/* Runs a command on a terminal of its own and ends as it ends: pty COMMAND... Only standard error stays what
 * it was. SIGUSR1 closes the terminal, as when its window is closed: the kernel then sends the command
 * SIGHUP. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void on_close(int number)
{
    (void)number;
    asked = 1;
}

/* Prints the output of the command, until the command has ended or the terminal is to be closed. */
static void show(int terminal, const sigset_t *awake)
{
    char bytes[4096];
    while (!asked) {
        struct pollfd p = {.fd = terminal, .events = POLLIN};
        if (ppoll(&p, 1, NULL, awake) < 0)
            continue;
        ssize_t n = read(terminal, bytes, sizeof bytes);
        if (n <= 0 || write(STDOUT_FILENO, bytes, (size_t)n) < 0)
            return;
    }
}

int main(int argc, char **argv)
{
    sigset_t usual, blocked;
    struct sigaction act = {.sa_handler = on_close};
    int terminal, status, said = dup(STDERR_FILENO);
    if (argc < 2 || said < 0)
        return 2;
    fcntl(said, F_SETFD, FD_CLOEXEC);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &usual);
    sigaction(SIGUSR1, &act, NULL);
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    if (child < 0) {
        perror("fault-pty");
        return 2;
    }
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        sigprocmask(SIG_SETMASK, &usual, NULL);
        dup2(said, STDERR_FILENO);
        execv(argv[1], argv + 1);
        _exit(127);
    }
    show(terminal, &usual);
    close(terminal);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
