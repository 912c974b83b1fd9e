/* `hvdagent reach HOST COMMAND`, which hvdrun starts as it starts ssh: `hvdrun --rsh 'hvdagent reach' ...`.
 *
 * When it works: the name resolves and `hvdagent wait` listens there (both may take time, when pods start in
 * any order) -> both ends show that they have the key -> input, output and errors are passed on -> the
 * command's exit status is ours. How it fails: nobody is there within the limit, the key is another one, or
 * the connection ends before the status: one line and 255. When hvdrun has gone, writing to it fails and we
 * end; the command at the other end sees the end of its input. */
#include "agent/reach/reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/reach/carrier.h"
#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/secret.h"
#include "common/net/net.h"

#define NO_CONNECTION  255
#define ONE_ADDRESS_MS 5000
#define FIRST_PAUSE_MS 100
#define LONGEST_PAUSE  2000
#define PROBE_S        15

/* ---- the connection ------------------------------------------------------------------------------------ */

static int connect_address(const union net_address *address, struct err *e)
{
    char text[NET_TEXT_MAX];
    int fd = net_connect(address, e);
    if (fd < 0)
        return -1;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n = poll(&p, 1, ONE_ADDRESS_MS);
    if (n > 0 && net_connected(fd, e) == 0 && net_set_quiet_options(fd, PROBE_S, e) == 0)
        return fd;
    if (n <= 0)
        err_set(e, ERR_HOST, "%s does not answer", net_format_port(address, text));
    close(fd);
    return -1;
}

/* All addresses of the name, once. */
static int connect_once(const struct reach_options *o, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all, *a;
    int rc = getaddrinfo(o->host, NULL, &hints, &all), fd = -1;
    if (rc != 0)
        return err_set(e, ERR_HOST, "%s: %s", o->host, gai_strerror(rc));
    for (a = all; a && fd < 0; a = a->ai_next) {
        union net_address address = {0};
        if (a->ai_addrlen > sizeof address)
            continue;
        memcpy(&address, a->ai_addr, a->ai_addrlen);
        net_set_port(&address, o->port);
        err_clear(e);
        fd = connect_address(&address, e);
    }
    freeaddrinfo(all);
    return fd;
}

/* Waits a little before the next try. false: the limit is over. */
static bool wait_again(uint64_t limit, int *pause_ms)
{
    if (clock_now() >= limit)
        return false;
    poll(NULL, 0, *pause_ms);
    *pause_ms = *pause_ms * 2 < LONGEST_PAUSE ? *pause_ms * 2 : LONGEST_PAUSE;
    return true;
}

/* ---- the command --------------------------------------------------------------------------------------- */

struct reach {
    struct carrier carrier;
    bool input_ended;
    uint64_t began;
    bool heard; /* the other end has the key, and has said something */
    bool again; /* it did not come to that: nothing is known of the key */
    int status; /* of the command; -1: not yet */
};

static int pass_input(struct reach *r, struct err *e)
{
    uint8_t bytes[CARRIER_BYTES_MAX];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    r->input_ended = n <= 0;
    carrier_put(&r->carrier, n > 0 ? CARRIER_INPUT : CARRIER_INPUT_ENDS, bytes, n > 0 ? (uint32_t)n : 0);
    return carrier_move(&r->carrier, e);
}

static int take_frame(struct reach *r, const struct carrier_frame *f, struct err *e)
{
    bool output = f->kind == CARRIER_OUTPUT;
    if (output || f->kind == CARRIER_ERRORS)
        return write_all(output ? STDOUT_FILENO : STDERR_FILENO, f->bytes, f->length) == 0
                   ? 0
                   : err_sys(e, errno, "nobody reads the output");
    if (f->kind == CARRIER_RUNS)
        return 0;
    if (f->kind != CARRIER_STATUS || f->length != 4)
        return err_set(e, ERR_PROTOCOL, "the other end sends what hvdagent wait does not");
    r->status = (int)(get_u32(f->bytes) & 0xff);
    return 0;
}

static int take_frames(struct reach *r, struct err *e)
{
    struct carrier_frame f;
    int rc = 0;
    while (rc == 0 && r->status < 0 && (rc = carrier_next(&r->carrier, &f, e)) > 0) {
        rc = take_frame(r, &f, e);
        carrier_drop(&r->carrier, &f);
    }
    return rc;
}

/* All that came before the end of the connection counts: the status may be among it. */
static int move_all(struct reach *r, const struct reach_options *o, struct err *e)
{
    struct err lost = ERR_INIT;
    int rc = carrier_move(&r->carrier, &lost);
    r->heard = r->heard || r->carrier.in.len > 0;
    if (take_frames(r, e) < 0)
        return -1;
    if (rc == 0 || r->status >= 0)
        return 0;
    if (r->heard)
        return err_set(e, ERR_CLOSED, "the connection to %s was lost: %s", o->host, lost.text);
    r->again = lost.code == ERR_CLOSED || lost.code == ERR_SYSTEM;
    if (r->again)
        return err_set(e, ERR_HOST, "%s has closed the connection at once: %s", o->host, lost.text);
    return err_set(e, ERR_HOST, "%s does not take the key %s; hvdagent wait there needs the same file (%s)",
                   o->host, o->key_file, lost.text);
}

/* Milliseconds of poll(2): until the other end has said something, as long as a handshake may take. */
static int patience_of(const struct reach *r)
{
    uint64_t passed = (clock_now() - r->began) / NSEC_PER_MSEC;
    if (r->heard)
        return -1;
    return passed < CARRIER_CONNECT_MS ? (int)(CARRIER_CONNECT_MS - passed) : 0;
}

static int run_command(struct reach *r, const struct reach_options *o, struct err *e)
{
    carrier_put(&r->carrier, CARRIER_COMMAND, o->command, (uint32_t)strlen(o->command));
    while (r->status < 0) {
        if (move_all(r, o, e) < 0)
            return -1;
        if (r->status >= 0)
            break;
        bool reads = r->heard && !r->input_ended && carrier_has_room(&r->carrier);
        struct pollfd p[2] = {{.fd = r->carrier.fd, .events = carrier_events(&r->carrier)},
                              {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN}};
        int patience = patience_of(r);
        if (patience == 0)
            return err_set(e, ERR_HOST, "%s says nothing at port %u: is that hvdagent wait?", o->host,
                           o->port);
        if (poll(p, 2, patience) < 0 && errno != EINTR)
            return err_sys(e, errno, "cannot wait");
        if (p[1].revents && pass_input(r, e) < 0 && r->status < 0)
            return -1;
    }
    return 0;
}

/* 1: a later try may do better. */
static int try_command(struct reach *r, const struct reach_options *o, const uint8_t *secret, struct err *e)
{
    *r = (struct reach){.status = -1, .began = clock_now()};
    int fd = connect_once(o, e);
    if (fd < 0)
        return 1;
    if (carrier_open(&r->carrier, fd, secret, true, e) < 0)
        return -1;
    int rc = run_command(r, o, e);
    carrier_close(&r->carrier);
    return rc < 0 && r->again ? 1 : rc;
}

static int run_within_limit(struct reach *r, const struct reach_options *o, const uint8_t *secret,
                            struct err *e)
{
    uint64_t limit = clock_now() + o->limit_s * NSEC_PER_SEC;
    int rc, pause_ms = FIRST_PAUSE_MS;
    while ((rc = try_command(r, o, secret, e)) > 0 && wait_again(limit, &pause_ms)) {
        log_debug("%s", e->text);
        err_clear(e);
    }
    return rc == 0 ? 0 : -1;
}

int reach_main(int argc, char **argv)
{
    struct reach_options o;
    struct reach r;
    struct err e = ERR_INIT;
    uint8_t *secret = secret_new(TLS_SECRET_SIZE);
    int rc = secret ? 0 : err_set(&e, ERR_MEMORY, "no memory for a key");
    signal(SIGPIPE, SIG_IGN);
    if (rc == 0)
        rc = reach_options_read(&o, false, argc, argv, &e);
    if (rc == 0)
        rc = carrier_read_key(o.key_file, secret, &e);
    if (rc == 0)
        rc = run_within_limit(&r, &o, secret, &e);
    secret_free(secret, TLS_SECRET_SIZE);
    if (rc == 0)
        return r.status;
    log_error("%s", e.text);
    return NO_CONNECTION;
}
