/* `ssh -G host` prints one "keyword value" a line, keywords in lower case, each with what holds for this host
 * after Match, Include and the command line. One table says what we do with each keyword; keywords that ask
 * for something libssh2 has no way to do (a proxy, certificates, a revocation list) are noted, and the
 * launcher takes the ssh program instead. */
#include "launcher/transport/ssh/ssh_config.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct reader {
    struct ssh_config *c;
    const struct ssh_user *me;
    bool identities, user_known, global_known; /* the defaults were dropped for what was read */
    struct err *e;
};

static int set_name(char *out, size_t size, const char *what, const char *value, struct err *e)
{
    int n = snprintf(out, size, "%s", value);
    if (n < 0 || (size_t)n >= size)
        return err_set(e, ERR_HOST, "ssh configuration: %s is too long: %.60s...", what, value);
    return 0;
}

static int push_path(struct ssh_paths *paths, const char *path, struct err *e)
{
    if (paths->count == SSH_PATHS_MAX)
        return 0; /* ssh itself stops at 100; a server closes the connection long before */
    char *copy = strdup(path);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for the ssh configuration");
    paths->path[paths->count++] = copy;
    return 0;
}

static void free_paths(struct ssh_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->path[i]);
    paths->count = 0;
}

void ssh_config_free(struct ssh_config *c)
{
    free_paths(&c->identity);
    free_paths(&c->user_known);
    free_paths(&c->global_known);
}

/* Expands a leading ~/ and %d %u %h %r %p %%. 0, or -1 for another token or a path that is too long. */
static int expand_path(const struct reader *r, const char *value, char *out, size_t size)
{
    char port[8];
    size_t len = 0;
    snprintf(port, sizeof port, "%u", (unsigned)r->c->port);
    for (const char *p = value; *p; p++) {
        char one[2] = {*p, '\0'};
        const char *text = one;
        if (p == value && p[0] == '~' && p[1] == '/') {
            text = r->me->home;
        } else if (*p == '%') {
            p++;
            text = *p == 'd'   ? r->me->home
                   : *p == 'u' ? r->me->name
                   : *p == 'h' ? r->c->hostname
                   : *p == 'r' ? r->c->user
                   : *p == 'p' ? port
                   : *p == '%' ? "%"
                               : NULL;
            if (!text)
                return -1;
        }
        size_t add = strlen(text);
        if (len + add >= size)
            return -1;
        memcpy(out + len, text, add);
        len += add;
    }
    out[len] = '\0';
    return 0;
}

static int read_hostname(struct reader *r, const char *value)
{
    return set_name(r->c->hostname, sizeof r->c->hostname, "hostname", value, r->e);
}

static int read_user(struct reader *r, const char *value)
{
    return set_name(r->c->user, sizeof r->c->user, "user", value, r->e);
}

static int read_alias(struct reader *r, const char *value)
{
    return set_name(r->c->host_key_alias, sizeof r->c->host_key_alias, "hostkeyalias", value, r->e);
}

static int read_port(struct reader *r, const char *value)
{
    char *end;
    errno = 0;
    long port = strtol(value, &end, 10);
    if (errno || end == value || *end || port < 1 || port > 65535)
        return err_set(r->e, ERR_HOST, "ssh configuration: bad port \"%.40s\"", value);
    r->c->port = (uint16_t)port;
    return 0;
}

static int read_strict(struct reader *r, const char *value)
{
    if (strcmp(value, "accept-new") == 0)
        r->c->strict = SSH_STRICT_ACCEPT_NEW;
    else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0 || strcmp(value, "off") == 0)
        r->c->strict = SSH_STRICT_NO;
    else
        r->c->strict = SSH_STRICT_YES; /* "ask" too: nobody is there to answer */
    return 0;
}

static int read_family(struct reader *r, const char *value)
{
    r->c->family = strcmp(value, "inet") == 0 ? AF_INET : strcmp(value, "inet6") == 0 ? AF_INET6 : AF_UNSPEC;
    return 0;
}

static int read_identities_only(struct reader *r, const char *value)
{
    r->c->identities_only = strcmp(value, "yes") == 0 || strcmp(value, "true") == 0;
    return 0;
}

static int read_public_key(struct reader *r, const char *value)
{
    r->c->no_public_key = strcmp(value, "no") == 0 || strcmp(value, "false") == 0;
    return 0;
}

static int read_identity(struct reader *r, const char *value)
{
    char path[SSH_PATH_MAX];
    if (!r->identities)
        free_paths(&r->c->identity);
    r->identities = true;
    if (strcmp(value, "none") == 0)
        return 0;
    if (expand_path(r, value, path, sizeof path) < 0)
        return set_name(r->c->unsupported, sizeof r->c->unsupported, "identityfile",
                        "IdentityFile with tokens", r->e);
    return push_path(&r->c->identity, path, r->e);
}

static int read_agent(struct reader *r, const char *value)
{
    if (strcmp(value, "SSH_AUTH_SOCK") == 0)
        return 0;
    r->c->agent[0] = '\0';
    if (strcmp(value, "none") == 0)
        return 0;
    const char *variable = value[0] == '$' ? getenv(value + 1) : NULL;
    if (value[0] == '$')
        return set_name(r->c->agent, sizeof r->c->agent, "identityagent", variable ? variable : "", r->e);
    if (expand_path(r, value, r->c->agent, sizeof r->c->agent) < 0)
        return set_name(r->c->unsupported, sizeof r->c->unsupported, "identityagent",
                        "IdentityAgent with tokens", r->e);
    return 0;
}

static int read_known(struct reader *r, const char *value, struct ssh_paths *paths, bool *dropped)
{
    char word[SSH_PATH_MAX], path[SSH_PATH_MAX];
    if (!*dropped)
        free_paths(paths);
    *dropped = true;
    while (*value) {
        size_t len = strcspn(value, " ");
        if (len && len < sizeof word) {
            memcpy(word, value, len);
            word[len] = '\0';
            if (strcmp(word, "none") != 0 && expand_path(r, word, path, sizeof path) == 0 &&
                push_path(paths, path, r->e) < 0)
                return -1;
        }
        value += len;
        value += strspn(value, " ");
    }
    return 0;
}

static int read_user_known(struct reader *r, const char *value)
{
    return read_known(r, value, &r->c->user_known, &r->user_known);
}

static int read_global_known(struct reader *r, const char *value)
{
    return read_known(r, value, &r->c->global_known, &r->global_known);
}

static const struct keyword {
    const char *name;
    int (*read)(struct reader *r, const char *value); /* NULL: only ssh can, unless the value is "none" */
} keywords[] = {
    {"hostname", read_hostname},
    {"user", read_user},
    {"port", read_port},
    {"hostkeyalias", read_alias},
    {"stricthostkeychecking", read_strict},
    {"addressfamily", read_family},
    {"identitiesonly", read_identities_only},
    {"pubkeyauthentication", read_public_key},
    {"identityfile", read_identity},
    {"identityagent", read_agent},
    {"userknownhostsfile", read_user_known},
    {"globalknownhostsfile", read_global_known},
    {"proxycommand", NULL},
    {"proxyjump", NULL},
    {"certificatefile", NULL},
    {"revokedhostkeys", NULL},
    {"knownhostscommand", NULL},
    {"pkcs11provider", NULL},
    {"bindaddress", NULL},
    {"bindinterface", NULL},
};

static int parse_line(struct reader *r, const char *line, size_t len)
{
    char text[2 * SSH_PATH_MAX];
    if (len >= sizeof text || memchr(line, '\0', len))
        return 0; /* the lists of algorithms are long, and nothing to us */
    memcpy(text, line, len);
    text[len] = '\0';
    char *value = strchr(text, ' ');
    if (!value)
        return 0;
    *value++ = '\0';
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (strcmp(text, keywords[i].name) != 0)
            continue;
        if (keywords[i].read)
            return keywords[i].read(r, value);
        if (strcmp(value, "none") != 0)
            snprintf(r->c->unsupported, sizeof r->c->unsupported, "%.60s %.180s", text, value);
        return 0;
    }
    return 0;
}

int ssh_config_parse(struct ssh_config *c, const struct ssh_user *me, const char *text, size_t len,
                     struct err *e)
{
    struct reader r = {.c = c, .me = me, .e = e};
    /* Values that paths are expanded with come first in what ssh prints today, but nothing says so: two
     * passes. */
    for (int pass = 0; pass < 2; pass++) {
        r.identities = r.user_known = r.global_known = false;
        const char *p = text, *end = text + len;
        while (p < end) {
            const char *newline = memchr(p, '\n', (size_t)(end - p));
            size_t line = newline ? (size_t)(newline - p) : (size_t)(end - p);
            if (parse_line(&r, p, line) < 0)
                return -1;
            p += line + (newline ? 1 : 0);
        }
    }
    return 0;
}

/* Names are files of ~/.ssh or absolute. */
static int default_paths(struct ssh_paths *paths, const char *home, const char *const *names, size_t count,
                         struct err *e)
{
    char path[SSH_PATH_MAX];
    for (size_t i = 0; i < count; i++) {
        bool absolute = names[i][0] == '/';
        int n =
            snprintf(path, sizeof path, "%s%s%s", absolute ? "" : home, absolute ? "" : "/.ssh/", names[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            return err_set(e, ERR_HOST, "the path of the home directory is too long");
        if (push_path(paths, path, e) < 0)
            return -1;
    }
    return 0;
}

int ssh_config_defaults(struct ssh_config *c, const struct ssh_user *me, const char *host, const char *user,
                        uint16_t port, struct err *e)
{
    static const char *const identities[] = {"id_ed25519", "id_ecdsa", "id_rsa"};
    static const char *const user_known[] = {"known_hosts", "known_hosts2"};
    static const char *const global_known[] = {"/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2"};
    *c = (struct ssh_config){.port = port ? port : 22, .family = AF_UNSPEC, .strict = SSH_STRICT_YES};
    if (set_name(c->hostname, sizeof c->hostname, "the host name", host, e) < 0 ||
        set_name(c->user, sizeof c->user, "the user name", user ? user : me->name, e) < 0 ||
        set_name(c->agent, sizeof c->agent, "SSH_AUTH_SOCK", me->agent ? me->agent : "", e) < 0 ||
        default_paths(&c->identity, me->home, identities, 3, e) < 0 ||
        default_paths(&c->user_known, me->home, user_known, 2, e) < 0 ||
        default_paths(&c->global_known, me->home, global_known, 2, e) < 0) {
        ssh_config_free(c);
        return -1;
    }
    return 0;
}

const struct ssh_user *ssh_user_find(struct err *e)
{
    static struct ssh_user me;
    if (me.home)
        return &me;
    const struct passwd *account = getpwuid(geteuid());
    const char *home = getenv("HOME");
    if (!account || !account->pw_name || !account->pw_dir) {
        err_set(e, ERR_SYSTEM, "user %u has no account on this machine", (unsigned)geteuid());
        return NULL;
    }
    if (!home || !*home)
        home = account->pw_dir;
    char *home_copy = strdup(home), *name_copy = strdup(account->pw_name);
    if (!home_copy || !name_copy) {
        free(home_copy);
        free(name_copy);
        err_set(e, ERR_MEMORY, "no memory for the user's name");
        return NULL;
    }
    /* Found once: looking up an account may be slow, and both hold as long as we run. */
    me = (struct ssh_user){.home = home_copy,
                           .name = name_copy,
                           .agent = getenv("SSH_AUTH_SOCK"),
                           .moved = strcmp(home, account->pw_dir) != 0};
    return &me;
}
