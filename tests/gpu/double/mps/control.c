/* Stands in for nvidia-cuda-mps-control where there is no GPU: the daemon (-f), and, without that, the
 * program that tells it what stands on standard input. It serves no CUDA; it checks how it was started.
 *
 * `nvidia-cuda-mps-control client COMMAND...` (the double's own) makes COMMAND a client with work under way,
 * as CUDA would. When such a client ends before terminate_client was called for it, the state of the real
 * service is undefined. This one is then faulted for all its other clients, and says so.
 *
 *   MPS_DOUBLE       how it misbehaves, words with blanks between:
 *       refuse       ends with 1 and a line       hang         makes no socket
 *       deaf MS      does not listen for so long  mute         listens and does not answer
 *       deaf-to-quit does not quit                server       has a server, which nothing tells to end
 *       crash MS     is killed so much later    slow MS      who asks it ends so late, whatever the signal
 *       stuck        answers nothing more when it is asked for its servers
 *   MPS_DOUBLE_LOG   a file for lines of what happened */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *fmt, ...)
{
    const char *path = getenv("MPS_DOUBLE_LOG");
    char line[4096];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0 || n < 0)
        return;
    n = n < (int)sizeof line - 1 ? n : (int)sizeof line - 2;
    line[n] = '\n';
    (void)!write(fd, line, (size_t)n + 1);
    close(fd);
}

/* The number behind a word of MPS_DOUBLE, or 0; -1: the word is not there. */
static long word(const char *name)
{
    const char *words = getenv("MPS_DOUBLE"), *at = words ? strstr(words, name) : NULL;
    size_t len = strlen(name);
    while (at && ((at > words && at[-1] != ' ') || (at[len] && at[len] != ' ')))
        at = strstr(at + 1, name);
    return at ? strtol(at + len, NULL, 10) : -1;
}

static void wait_ms(long ms)
{
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static const char *directory(const char *name, const char *otherwise)
{
    const char *path = getenv(name);
    return path ? path : otherwise;
}

static struct sockaddr_un address_of(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s",
                     directory("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), name);
    if (n < 0 || (size_t)n >= sizeof address.sun_path)
        _exit(3);
    return address;
}

/* ---- the program that asks ----------------------------------------------------------------------------- */

static int connect_to_daemon(int flags)
{
    struct sockaddr_un address = address_of("control");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | flags, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    note("nobody to ask");
    fprintf(stderr, "no daemon answers at %s\n", address.sun_path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static int ask(void)
{
    char command[256], answer[1024];
    int lines = 0;
    for (; fgets(command, sizeof command, stdin); lines++) {
        int fd = connect_to_daemon(SOCK_CLOEXEC);
        if (fd < 0)
            return 1;
        if (word("slow") >= 0) {
            signal(SIGTERM, SIG_IGN);
            note("asks slowly");
            wait_ms(word("slow"));
        }
        ssize_t n = send(fd, command, strlen(command), MSG_NOSIGNAL);
        n = n < 0 ? -1 : recv(fd, answer, sizeof answer, 0);
        close(fd);
        if (n < 0)
            return 1;
        fwrite(answer, 1, (size_t)n, stdout);
    }
    return lines > 0 ? 0 : 2;
}

/* Its connection lives as long as the process, and whoever has it from there. */
static int be_client(char *argv[])
{
    char words[64];
    int fd = connect_to_daemon(0), n = snprintf(words, sizeof words, "client %d", (int)getpid());
    if (fd < 0 || send(fd, words, (size_t)n, MSG_NOSIGNAL) < 0 || recv(fd, words, sizeof words, 0) < 0)
        return 1;
    execvp(argv[0], argv);
    perror(argv[0]);
    return 127;
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

static void check_private(const char *name)
{
    struct stat st;
    const char *path = getenv(name);
    bool good = path && stat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() &&
                (st.st_mode & 07777) == 0700;
    note("%s %s", name, good ? "private" : "not private");
}

static void start_server(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        for (;;)
            pause();
    }
    note("server %d", (int)pid);
}

static int make_socket(void)
{
    struct sockaddr_un address = address_of("control"), pid = address_of("nvidia-cuda-mps-control.pid"),
                       log = address_of("log");
    int file = open(pid.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (file < 0 || fd < 0 || mkfifo(log.sun_path, 0666) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        perror("cannot make the files");
        return -1;
    }
    dprintf(file, "%d\n", (int)getpid());
    close(file);
    if (word("deaf") >= 0)
        wait_ms(word("deaf"));
    return listen(fd, 16) < 0 ? -1 : fd;
}

#define CLIENTS_MAX 64

static struct client {
    int fd;
    pid_t pid; /* 0: somebody who asks */
    bool told; /* to end */
} clients[CLIENTS_MAX];
static nfds_t n_clients;

static void answer_to(int fd, const char *command)
{
    char text[1024] = "\n";
    int used = 0, server, pid;
    if (strcmp(command, "get_server_list") == 0 && n_clients > 0)
        snprintf(text, sizeof text, "%d\n", (int)getpid());
    else if (sscanf(command, "get_client_list %d", &server) == 1 && server == (int)getpid())
        for (nfds_t i = 0; i < n_clients; i++)
            used += snprintf(text + used, sizeof text - (size_t)used, "%d\n", (int)clients[i].pid);
    else if (sscanf(command, "terminate_client %d %d", &server, &pid) == 2 && server == (int)getpid())
        for (nfds_t i = 0; i < n_clients; i++)
            clients[i].told = clients[i].told || clients[i].pid == pid;
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void lose(nfds_t i)
{
    if (!clients[i].told)
        note("faulted by %d", (int)clients[i].pid);
    close(clients[i].fd);
    clients[i] = clients[--n_clients];
}

/* False: it is to quit. */
static bool take(int fd)
{
    char command[256];
    int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC), pid;
    ssize_t n = client >= 0 ? recv(client, command, sizeof command - 1, 0) : -1;
    if (n <= 0 || word("mute") >= 0)
        return true; /* it keeps its connection, and waits */
    command[n] = '\0';
    command[strcspn(command, "\n")] = '\0';
    if (sscanf(command, "client %d", &pid) == 1 && n_clients < CLIENTS_MAX) {
        clients[n_clients++] = (struct client){client, pid, false};
        (void)!send(client, "\n", 1, MSG_NOSIGNAL);
        return true;
    }
    note("told %s", command);
    if (word("stuck") >= 0)
        return true;
    answer_to(client, command);
    close(client);
    return strcmp(command, "quit") != 0 || word("deaf-to-quit") >= 0;
}

static int serve(int fd)
{
    for (;;) {
        struct pollfd f[1 + CLIENTS_MAX] = {{fd, POLLIN, 0}};
        nfds_t n = n_clients;
        for (nfds_t i = 0; i < n; i++)
            f[1 + i] = (struct pollfd){clients[i].fd, POLLIN, 0};
        if (poll(f, 1 + n, -1) < 0)
            continue;
        for (nfds_t i = n; i-- > 0;)
            if (f[1 + i].revents)
                lose(i);
        if (f[0].revents && !take(fd))
            return 0;
    }
}

static void on_alarm(int number)
{
    (void)number;
    (void)kill(getpid(), SIGKILL);
}

static int run(void)
{
    note("daemon %d gpus %s order %s", (int)getpid(), directory("CUDA_VISIBLE_DEVICES", "unset"),
         directory("CUDA_DEVICE_ORDER", "unset"));
    check_private("CUDA_MPS_PIPE_DIRECTORY");
    check_private("CUDA_MPS_LOG_DIRECTORY");
    if (word("refuse") >= 0) {
        printf("a first line\nthe double refuses\n\n");
        return 1;
    }
    while (word("hang") >= 0)
        pause();
    int fd = make_socket();
    if (fd < 0)
        return 1;
    if (word("server") >= 0)
        start_server();
    if (word("crash") > 0) {
        struct itimerspec at = {.it_value = {word("crash") / 1000, word("crash") % 1000 * 1000000}};
        timer_t timer;
        signal(SIGALRM, on_alarm);
        if (timer_create(CLOCK_MONOTONIC, NULL, &timer) < 0 || timer_settime(timer, 0, &at, NULL) < 0)
            return 1;
    }
    return serve(fd);
}

int main(int argc, char *argv[])
{
    if (argc == 1)
        return ask();
    if (argc == 2 && strcmp(argv[1], "-f") == 0)
        return run();
    if (argc > 2 && strcmp(argv[1], "client") == 0)
        return be_client(argv + 2);
    fprintf(stderr, "usage: %s [-f | client COMMAND...]\n", argv[0]);
    return 2;
}
