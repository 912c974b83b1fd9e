#include <stdlib.h>
#include <string.h>

#include "agent/reach/carrier.h"
#include "agent/reach/reach.h"

#define KEY_FILE "/etc/hvdrun/key"
#define LIMIT_S  600
#define LINGER_S 10
#define MOST_S   86400

static int read_number(const char *name, const char *text, unsigned long most, uint32_t *to, struct err *e)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || n < 1 || n > most)
        return err_set(e, ERR_USAGE, "%s takes a number from 1 to %lu: %.40s", name, most, text);
    *to = (uint32_t)n;
    return 0;
}

static int read_option(struct reach_options *o, bool waits, const char *name, const char *value,
                       struct err *e)
{
    uint32_t port = 0;
    if (strcmp(name, "--key-file") == 0) {
        o->key_file = value;
        return 0;
    }
    if (strcmp(name, "--port") == 0) {
        int rc = read_number(name, value, UINT16_MAX, &port, e);
        o->port = (uint16_t)port;
        return rc;
    }
    if (strcmp(name, "--limit") == 0)
        return read_number(name, value, MOST_S, &o->limit_s, e);
    if (waits && strcmp(name, "--linger") == 0)
        return read_number(name, value, MOST_S, &o->linger_s, e);
    if (waits && strcmp(name, "--address") == 0) {
        o->address = value;
        return 0;
    }
    return err_set(e, ERR_USAGE, "unknown option %.60s", name);
}

static int read_target(struct reach_options *o, int argc, char **argv, struct err *e)
{
    if (argc != 2)
        return err_set(e, ERR_USAGE, "reach takes a host and a command: hvdrun adds both to --rsh");
    if (strchr(argv[0], '@'))
        return err_set(e, ERR_USAGE, "%.60s: a host that is reached so has no users to choose from", argv[0]);
    if (!*argv[0] || !*argv[1] || strlen(argv[1]) > CARRIER_BYTES_MAX)
        return err_set(e, ERR_USAGE, "the host or the command is empty or too long");
    o->host = argv[0];
    o->command = argv[1];
    return 0;
}

int reach_options_read(struct reach_options *o, bool waits, int argc, char **argv, struct err *e)
{
    *o = (struct reach_options){
        .key_file = KEY_FILE, .port = CARRIER_PORT, .limit_s = LIMIT_S, .linger_s = LINGER_S};
    for (; argc > 0 && argv[0][0] == '-'; argc -= 2, argv += 2) {
        if (argc < 2)
            return err_set(e, ERR_USAGE, "%.60s wants a value", argv[0]);
        if (read_option(o, waits, argv[0], argv[1], e) < 0)
            return -1;
    }
    if (!waits)
        return read_target(o, argc, argv, e);
    return argc > 0 ? err_set(e, ERR_USAGE, "unexpected argument: %.60s", argv[0]) : 0;
}
