#include "tests/unit/ssh_server.h"
#include "tests/unit/scratch.h"

#include <arpa/inet.h>
#include <check.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SSHD "/usr/sbin/sshd"

static char base[SCRATCH_MAX]; /* the directory of all servers */

static pid_t run_in(const char *dir, const char *line, int out)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(dir) < 0 || (out >= 0 && dup2(out, 1) < 0))
            _exit(127);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(pid, 0);
    return pid;
}

static void await_success(pid_t pid, const char *line)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(status == 0, "%s: status %d", line, status);
}

void shell(const struct ssh_server *s, const char *fmt, ...)
{
    char line[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    await_success(run_in(s->dir, line, -1), line);
}

void shell_output(const struct ssh_server *s, char *out, size_t size, const char *fmt, ...)
{
    char line[4096];
    int fds[2];
    size_t len = 0;
    ssize_t n;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = run_in(s->dir, line, fds[1]);
    close(fds[1]);
    while (len < size - 1 && (n = read(fds[0], out + len, size - 1 - len)) > 0)
        len += (size_t)n;
    close(fds[0]);
    out[len] = '\0';
    await_success(pid, line);
    if (len && out[len - 1] == '\n')
        out[len - 1] = '\0';
}

bool ssh_server_possible(void)
{
    if (access(SSHD, X_OK) == 0)
        return scratch_dir(base, "sshd") != NULL;
    fprintf(stderr, "no %s: tests against a real sshd are left out\n", SSHD);
    return false;
}

void ssh_server_clean(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", base, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, NULL, 0);
}

/* A test that fails ends without its teardown: what it started must not outlive it, nor hold the test's
 * output open. */
static void become_daemon(void)
{
    int null = open("/dev/null", O_RDWR);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
}

static int bound_socket(uint16_t *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static uint16_t free_port(void)
{
    uint16_t port;
    close(bound_socket(&port));
    return port;
}

uint16_t fake_server(const char *says)
{
    uint16_t port;
    int fd = bound_socket(&port);
    ck_assert_int_eq(listen(fd, 8), 0);
    if (fork() == 0) {
        become_daemon();
        int client = accept(fd, NULL, NULL);
        if (write(client, says, strlen(says)) < 0)
            _exit(1);
        shutdown(client, SHUT_WR);
        char bytes[256];
        while (read(client, bytes, sizeof bytes) > 0)
            ;
        _exit(0);
    }
    close(fd);
    return port;
}

/* sshd says on its stderr when it listens. */
static void await_listening(int fd)
{
    char text[8192];
    size_t len = 0;
    ssize_t n;
    while (len < sizeof text - 1 && (n = read(fd, text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)n;
        text[len] = '\0';
        if (strstr(text, "Server listening"))
            return;
    }
    ck_abort_msg("sshd did not start: %s", text);
}

/* A socket that is bound but not listened to refuses connections. */
static bool is_answered(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    bool yes = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return yes;
}

/* ssh-agent is setgid, which takes PDEATHSIG away: a shell that sees EOF when we end takes it along. */
void ssh_agent_start(const struct ssh_server *s, const char *path)
{
    char line[256];
    int fds[2];
    snprintf(line, sizeof line, "trap : TERM; ssh-agent -D -a %s >/dev/null 2>&1 & read x; kill $!", path);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        become_daemon();
        dup2(fds[0], 0);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(fds[0]); /* the other end stays open until we end */
    while (!is_answered(path) && waitpid(pid, NULL, WNOHANG) == 0)
        usleep(1000);
}

static void start_sshd(struct ssh_server *s)
{
    char config[128];
    int fds[2];
    snprintf(config, sizeof config, "%s/sshd_config", s->dir);
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    s->pid = fork();
    if (s->pid == 0) {
        become_daemon();
        dup2(fds[1], 2);
        if (chdir(s->dir) < 0)
            _exit(127);
        execl(SSHD, SSHD, "-D", "-e", "-f", config, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    await_listening(fds[0]);
    /* The read end stays open until we end: sshd goes on writing its log. It is little, and a full pipe would
     * stop sshd. */
}

void ssh_server_start(struct ssh_server *s, const char *host_key, const char *extra)
{
    char home[96];
    const struct passwd *me = getpwuid(geteuid());
    ck_assert_ptr_nonnull(me);
    snprintf(s->user, sizeof s->user, "%s", me->pw_name);
    snprintf(s->dir, sizeof s->dir, "%s/XXXXXX", base);
    ck_assert_ptr_nonnull(mkdtemp(s->dir));
    snprintf(home, sizeof home, "%s/home", s->dir);
    setenv("HOME", home, 1);
    unsetenv("SSH_AUTH_SOCK");
    if (geteuid() == 0)
        mkdir("/run/sshd", 0755); /* sshd insists on it when it is root */
    s->port = free_port();
    shell(s, "mkdir -p -m 700 home/.ssh && for k in user other host_ed25519; do ssh-keygen -q -t ed25519 -N "
             "'' -C $k-key -f $k; done");
    shell(s,
          "ssh-keygen -q -t ecdsa -N '' -f host_ecdsa && if [ %s = host_rsa ]; then ssh-keygen -q -t rsa -b "
          "2048 -N '' -f host_rsa; fi",
          host_key);
    shell(s,
          "cp user.pub authorized_keys && printf '[127.0.0.1]:%u ' > home/.ssh/known_hosts && cat %s.pub >> "
          "home/.ssh/known_hosts",
          s->port, host_key);
    shell(
        s,
        "cat > sshd_config <<'END'\n%s\nListenAddress 127.0.0.1\nPort %u\nHostKey %s/%s\nAuthorizedKeysFile "
        "%s/authorized_keys\n"
        "PidFile none\nUsePAM no\nStrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication "
        "no\n"
        "PermitRootLogin yes\nPrintMotd no\nMaxStartups 200\nEND\n",
        extra ? extra : "", s->port, s->dir, host_key, s->dir); /* sshd takes the first value of a key */
    start_sshd(s);
}

void ssh_server_stop(struct ssh_server *s)
{
    int status;
    kill(s->pid, SIGTERM);
    waitpid(s->pid, &status, 0);
}
