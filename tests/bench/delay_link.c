/* delay_link INTERFACE TAP DELAY_US - lengthens a link where the kernel has no netem: whatever arrives on
 * INTERFACE (a veth's end) leaves through the new interface TAP after DELAY_US, and the other way round.
 * Frames are passed on with their offload headers, so that a large one stays one; what comes faster than the
 * link's rate is the business of a tbf on it. Says "ready". Ends when an interface goes. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX  (10 + 18 + 65536) /* offload header, Ethernet's with a VLAN, the largest packet */
#define FRAMES_MAX 4096              /* under way in a direction; more are lost, as in a full queue */
#define BURST      64

struct frame {
    uint64_t due;
    size_t length;
    struct frame *next;
    unsigned char data[];
};

struct direction {
    int in, out;
    struct frame *first, **last;
    int frames;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "delay_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int open_interface(const char *name)
{
    const int one = 1, room = 16 << 20;
    struct sockaddr_ll at = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = (int)if_nametoindex(name)};
    struct packet_mreq all = {.mr_ifindex = at.sll_ifindex, .mr_type = PACKET_MR_PROMISC};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));

    if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room) != 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof at) != 0 ||
        setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof all) != 0)
        die(name);
    return fd;
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6) != 0)
        die(name);
    return fd;
}

static int gone(ssize_t n)
{
    return n < 0 && (errno == ENETDOWN || errno == ENODEV || errno == ENXIO || errno == EBADFD);
}

/* Takes what has arrived, at most BURST frames. -1: the interface has gone. */
static int take(struct direction *d, uint64_t delay)
{
    static unsigned char data[FRAME_MAX];

    for (int i = 0; i < BURST; i++) {
        const ssize_t n = read(d->in, data, sizeof data);
        struct frame *f;

        if (gone(n))
            return -1;
        if (n <= 0)
            return 0;
        if (d->frames == FRAMES_MAX || (f = malloc(sizeof *f + (size_t)n)) == NULL)
            continue;
        *f = (struct frame){.due = now_ns() + delay, .length = (size_t)n};
        memcpy(f->data, data, (size_t)n);
        *d->last = f;
        d->last = &f->next;
        d->frames++;
    }
    return 0;
}

/* Sends what is due. When the next one will be; UINT64_MAX: there is none. */
static uint64_t give(struct direction *d)
{
    while (d->first != NULL && d->first->due <= now_ns()) {
        struct frame *f = d->first;
        const ssize_t n = write(d->out, f->data, f->length);

        if (gone(n))
            exit(0);
        d->first = f->next;
        if (d->first == NULL)
            d->last = &d->first;
        d->frames--;
        free(f);
    }
    return d->first != NULL ? d->first->due : UINT64_MAX;
}

int main(int argc, char **argv)
{
    const uint64_t delay = argc == 4 ? strtoull(argv[3], NULL, 10) * 1000 : 0;
    struct direction way[2];
    int a, b;

    if (delay == 0) {
        fprintf(stderr, "usage: delay_link INTERFACE TAP DELAY_US\n");
        return 2;
    }
    a = open_interface(argv[1]);
    b = open_tap(argv[2]);
    way[0] = (struct direction){a, b, NULL, &way[0].first, 0};
    way[1] = (struct direction){b, a, NULL, &way[1].first, 0};
    prctl(PR_SET_TIMERSLACK, 1000);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    puts("ready");
    fflush(stdout);
    for (;;) {
        const uint64_t one = give(&way[0]), two = give(&way[1]), next = one < two ? one : two, now = now_ns();
        const uint64_t wait = next > now ? next - now : 0;
        struct timespec time = {(time_t)(wait / 1000000000u), (long)(wait % 1000000000u)};
        struct pollfd p[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};

        if (ppoll(p, 2, next != UINT64_MAX ? &time : NULL, NULL) < 0 && errno != EINTR)
            die("ppoll");
        if (take(&way[0], delay) != 0 || take(&way[1], delay) != 0)
            return 0;
    }
}
