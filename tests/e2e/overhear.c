/* overhear NEEDLE COMMAND...: runs the command and listens at every interface of this network namespace but
 * loopback meanwhile, as somebody on the wire would. Prints "overheard N", how many packets held the needle.
 * Root. */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if_arp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned listen_until(int wire, int end, const char *needle)
{
    static char packet[65536];
    unsigned heard = 0;
    struct pollfd fds[] = {{wire, POLLIN, 0}, {end, POLLIN, 0}};
    while (poll(fds, 2, -1) >= 0) {
        if (!(fds[0].revents & POLLIN) && fds[1].revents)
            break; /* ended, and all that came before was looked at */
        struct sockaddr_ll from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(wire, packet, sizeof packet, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
        heard += n > 0 && from.sll_hatype != ARPHRD_LOOPBACK &&
                 memmem(packet, (size_t)n, needle, strlen(needle)) != NULL;
    }
    return heard;
}

int main(int argc, char **argv)
{
    int size = 64 << 20, status = 1;
    if (argc < 3)
        return fputs("overhear: a needle and a command\n", stderr), 2;
    int wire = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    if (wire < 0 || setsockopt(wire, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size) < 0)
        return perror("overhear"), 2;
    pid_t pid = fork();
    if (pid == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int end = pid > 0 ? pidfd_open(pid, 0) : -1;
    if (end < 0)
        return perror("overhear"), 2;
    unsigned heard = listen_until(wire, end, argv[1]);
    waitpid(pid, &status, 0);
    printf("overheard %u\n", heard);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
