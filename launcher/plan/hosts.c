/* The lists of hosts.h.
 *
 * An entry is cut into user, name and slots by host_entry_read, whether it stands in -H or in a hostfile; a
 * hostfile's line may follow it with slots=, max_slots= and a comment. Entries are added through a hash of
 * their names, so that a repeated host is found without looking at all others. The message of every error
 * names the entry, and for a file its path and line; the list is then emptied.
 *
 * The bytes need not end in NUL (a fuzzer feeds them as they are), and a NUL within them is an error. */
#include "launcher/plan/hosts.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHOWN     80 /* bytes of an entry in a message */
#define LINE_SIZE 4096

/* A list being made. */
struct builder {
    struct host_list *list;
    size_t room;
    uint32_t *slot; /* hash table: index + 1 of a host, 0 empty; its size is a power of two */
    size_t slots;
    const char *path; /* of the hostfile; NULL for a list */
    const char *from; /* the source of the list, for messages */
    uint32_t line;    /* of the entry; in a list its position */
};

/* ---- an entry ------------------------------------------------------------------------------------------ */

/* One host as it stands in -H or at the start of a hostfile's line: [user@]name[:slots],
 * [user@][address][:slots].
 *
 * Names and users may hold only what no carrier (ssh, --rsh's words, a remote shell) can take for an option,
 * a path or a piece of shell. Each function cuts one piece off and says what is wrong with it, in the order
 * user, name, slots. */

/* Some bytes of the user's text; not terminated. */
struct text {
    const char *at;
    size_t len;
};

struct host_entry {
    struct text user, name;
    uint32_t slots, max_slots; /* 0: not given */
};

/* Bytes `from` to `to` of a text. */
static inline struct text text_part(struct text t, size_t from, size_t to)
{
    return (struct text){t.at + from, to - from};
}

static ptrdiff_t last_index(struct text t, char c)
{
    const char *found = t.len ? memrchr(t.at, c, t.len) : NULL;
    return found ? found - t.at : -1;
}

/* Characters that no carrier takes for an option, a path or a piece of shell. */
static bool is_plain(struct text t, const char *also)
{
    for (size_t i = 0; i < t.len; i++)
        if (!t.at[i] || (!isalnum((unsigned char)t.at[i]) && !strchr(also, t.at[i])))
            return false;
    return t.len && t.at[0] != '-';
}

/* An IPv6 address, perhaps with a zone: fe80::1%eth0. */
static bool is_ipv6(struct text t)
{
    char address[INET6_ADDRSTRLEN + 1];
    struct in6_addr ignored;
    const char *zone = t.len ? memchr(t.at, '%', t.len) : NULL;
    size_t len = zone ? (size_t)(zone - t.at) : t.len;
    if (len >= sizeof address || (zone && !is_plain(text_part(t, len + 1, t.len), "._-")))
        return false;
    memcpy(address, t.at, len);
    address[len] = '\0';
    return inet_pton(AF_INET6, address, &ignored) == 1;
}

static int read_slots(struct text t, uint32_t *slots)
{
    uint64_t n = 0;
    for (size_t i = 0; i < t.len; i++) {
        if (t.at[i] < '0' || t.at[i] > '9')
            return -1;
        n = n * 10 + (uint64_t)(t.at[i] - '0');
        if (n > HOSTS_SLOTS_MAX)
            return -1;
    }
    *slots = (uint32_t)n;
    return n ? 0 : -1;
}

#define SLOTS_WANTED "from 1 to 1000000"
_Static_assert(HOSTS_SLOTS_MAX == 1000000, "the messages say so");

/* [user@] in front of `t`; what follows it is left in *rest. */
static const char *cut_user(struct text t, struct host_entry *entry, struct text *rest)
{
    ptrdiff_t at = last_index(t, '@');
    *rest = text_part(t, (size_t)(at + 1), t.len);
    if (at < 0)
        return NULL;
    entry->user = text_part(t, 0, (size_t)at);
    if (at == 0)
        return "the user before '@' is empty";
    if (at > HOSTS_USER_MAX)
        return "the user is longer than 64 bytes";
    if (!is_plain(entry->user, "._-+@"))
        return "the user may hold letters, digits, '.', '_', '+' and '-' and not begin with '-'";
    return NULL;
}

/* [address] or [address]:slots; `after` is what follows the bracket. */
static const char *cut_bracket(struct text t, struct host_entry *entry, struct text *after)
{
    const char *end = memchr(t.at, ']', t.len);
    if (!end)
        return "']' is missing after the IPv6 address";
    entry->name = text_part(t, 1, (size_t)(end - t.at));
    *after = text_part(t, (size_t)(end - t.at) + 1, t.len);
    if (!is_ipv6(entry->name))
        return "between '[' and ']' stands no IPv6 address";
    if (after->len && after->at[0] != ':')
        return "after ']' only ':' and the slots may follow";
    return NULL;
}

static const char *cut_name(struct text t, struct host_entry *entry, struct text *after)
{
    const char *colon = t.len ? memchr(t.at, ':', t.len) : NULL;
    size_t len = colon ? (size_t)(colon - t.at) : t.len;
    entry->name = text_part(t, 0, len);
    *after = text_part(t, len, t.len);
    if (after->len && memchr(after->at + 1, ':', after->len - 1))
        return "an IPv6 address is written in brackets, as in [::1]:2";
    if (!len)
        return "the name of the host is empty";
    if (len > HOSTS_NAME_MAX)
        return "the name of the host is longer than 255 bytes";
    if (!is_plain(entry->name, "._-"))
        return "the name of a host may hold letters, digits, '.', '_' and '-' and not begin with '-'";
    return NULL;
}

/* user@name:slots in all its forms; NULL, or what is wrong with it. */
static const char *host_entry_read(struct text t, struct host_entry *entry)
{
    struct text rest, after;
    *entry = (struct host_entry){0};
    if (!t.len)
        return "a host is missing";
    const char *wrong = cut_user(t, entry, &rest);
    if (!wrong)
        wrong =
            rest.len && rest.at[0] == '[' ? cut_bracket(rest, entry, &after) : cut_name(rest, entry, &after);
    if (wrong)
        return wrong;
    if (after.len == 1)
        return "a number of slots is missing after ':'; it must be " SLOTS_WANTED;
    if (after.len && read_slots(text_part(after, 1, after.len), &entry->slots))
        return "the slots after ':' must be a number " SLOTS_WANTED;
    return NULL;
}

/* The value behind `key`= in a word. The key may be in any case, with - for _. `at` is NULL when the word has
 * another key. */
static struct text value_of(struct text word, const char *key)
{
    size_t len = strlen(key), at = len;
    for (size_t i = 0; i < len; i++)
        if (i >= word.len || tolower((unsigned char)(word.at[i] == '-' ? '_' : word.at[i])) != key[i])
            return (struct text){0};
    while (at < word.len && isspace((unsigned char)word.at[at]))
        at++;
    if (at == word.len || word.at[at++] != '=')
        return (struct text){0};
    while (at < word.len && isspace((unsigned char)word.at[at]))
        at++;
    return text_part(word, at, word.len);
}

/* slots=N or max_slots=N, with or without blanks around the =, as behind a host in a hostfile; NULL, or what
 * is wrong with it. */
static const char *host_entry_setting(struct text word, struct host_entry *entry)
{
    struct text slots = value_of(word, "slots"), most = value_of(word, "max_slots");
    uint32_t *field = slots.at ? &entry->slots : most.at ? &entry->max_slots : NULL;
    if (!field)
        return "expected slots=N, max_slots=N or a comment";
    if (*field)
        return "the number of slots is given twice";
    return read_slots(slots.at ? slots : most, field) ? "must be a number " SLOTS_WANTED : NULL;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

static int bad_entry(const struct builder *b, struct text entry, struct err *e, const char *why)
{
    int shown = (int)(entry.len < SHOWN ? entry.len : SHOWN);
    if (b->path)
        return err_set(e, ERR_USAGE, "%s:%u: '%.*s': %s", b->path, b->line, shown, entry.at, why);
    return err_set(e, ERR_USAGE, "%s: '%.*s': %s", b->from, shown, entry.at, why);
}

/* ---- the list ------------------------------------------------------------------------------------------ */

/* FNV-1a over the name in lower case: names of hosts know no case. */
static size_t hash_name(struct text name)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < name.len; i++)
        h = (h ^ (uint64_t)tolower((unsigned char)name.at[i])) * 1099511628211u;
    return (size_t)(h ^ (h >> 32));
}

static bool is_same_name(const char *have, struct text t)
{
    return have && strncasecmp(have, t.at, t.len) == 0 && !have[t.len];
}

/* The place of `name` in the table, or its place to be. */
static uint32_t *find_slot(struct builder *b, struct text name)
{
    size_t i = hash_name(name) & (b->slots - 1);
    while (b->slot[i] && !is_same_name(b->list->host[b->slot[i] - 1].name, name))
        i = (i + 1) & (b->slots - 1);
    return &b->slot[i];
}

/* Room for one more host; the table is kept at most half full. */
static int grow_table(struct builder *b, struct err *e)
{
    if (b->list->count < b->room)
        return 0;
    if (b->room >= HOSTS_MAX)
        return err_set(e, ERR_USAGE, "%s:%u: more than %d hosts", b->path ? b->path : b->from, b->line,
                       HOSTS_MAX);
    size_t room = b->room ? b->room * 2 : 16;
    struct host_spec *host = reallocarray(b->list->host, room, sizeof *host);
    if (host)
        b->list->host = host;
    uint32_t *slot = calloc(room * 2, sizeof *slot);
    if (!host || !slot) {
        free(slot);
        return err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    free(b->slot);
    b->slot = slot;
    b->slots = room * 2;
    b->room = room;
    for (size_t i = 0; i < b->list->count; i++)
        *find_slot(b, (struct text){host[i].name, strlen(host[i].name)}) = (uint32_t)i + 1;
    return 0;
}

static int append_host(struct builder *b, const struct host_entry *entry, struct err *e)
{
    struct host_spec host = {.line = b->line};
    if (grow_table(b, e))
        return -1;
    host.name = strndup(entry->name.at, entry->name.len);
    host.user = entry->user.len ? strndup(entry->user.at, entry->user.len) : NULL;
    if (!host.name || (entry->user.len && !host.user)) {
        free(host.name);
        free(host.user);
        return err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    *find_slot(b, entry->name) = (uint32_t)b->list->count + 1;
    b->list->host[b->list->count++] = host;
    return 0;
}

/* The same user, or neither has one. Users, other than hosts, know case. */
static bool same_user(const struct host_spec *host, const struct host_entry *entry)
{
    if (!host->user || !entry->user.len)
        return !host->user && !entry->user.len;
    return strlen(host->user) == entry->user.len && memcmp(host->user, entry->user.at, entry->user.len) == 0;
}

/* Puts an entry into the list, or its slots onto those of the host that is there already. */
static int add_entry(struct builder *b, const struct host_entry *entry, struct text shown, struct err *e)
{
    bool known = b->slots && *find_slot(b, entry->name);
    if (!known && append_host(b, entry, e))
        return -1;
    struct host_spec *host = &b->list->host[*find_slot(b, entry->name) - 1];
    if (!same_user(host, entry))
        return bad_entry(b, shown, e, "the same host was named before with another user");
    if (known && (host->bare > 0) != (entry->slots == 0))
        return bad_entry(b, shown, e, "the same host was named before; give slots every time or never");
    if (entry->slots == 0)
        host->bare++;
    host->slots = host->bare > 1 ? host->bare : host->slots + entry->slots;
    if (host->slots > HOSTS_SLOTS_MAX)
        return bad_entry(b, shown, e, "the slots of this host add up to more than 1000000");
    if (entry->max_slots && (!host->max_slots || entry->max_slots < host->max_slots))
        host->max_slots = entry->max_slots;
    if (host->max_slots && host->slots > host->max_slots)
        return bad_entry(b, shown, e, "more slots than max_slots");
    return 0;
}

/* Ends a list: on failure it is emptied. */
static int finish_list(struct builder *b, int rc)
{
    free(b->slot);
    if (rc)
        hosts_free(b->list);
    return rc;
}

int hosts_parse(struct host_list *list, const char *text, const char *from, struct err *e)
{
    struct builder b = {.list = list, .from = from};
    *list = (struct host_list){0};
    if (!*text)
        return err_set(e, ERR_USAGE, "%s: the list of hosts is empty", from);
    for (const char *at = text; at; b.line++) {
        struct host_entry entry;
        struct text item = {at, strcspn(at, ",")};
        b.line = b.line ? b.line : 1;
        const char *wrong = host_entry_read(item, &entry);
        if (!item.len) {
            err_set(e, ERR_USAGE, "%s: '%.*s': entry %u is empty", from, SHOWN, text, b.line);
            return finish_list(&b, -1);
        }
        if (wrong ? bad_entry(&b, item, e, wrong) : add_entry(&b, &entry, item, e))
            return finish_list(&b, -1);
        at = at[item.len] ? at + item.len + 1 : NULL;
    }
    return finish_list(&b, 0);
}

/* ---- hostfiles ----------------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}

/* The next word of a line; *line is moved behind it. */
static struct text next_word(struct text *line)
{
    size_t from = 0, to;
    while (from < line->len && is_blank(line->at[from]))
        from++;
    for (to = from; to < line->len && !is_blank(line->at[to]);)
        to++;
    struct text word = text_part(*line, from, to);
    *line = text_part(*line, to, line->len);
    return word;
}

/* A word, or words with a = between them. */
static struct text next_setting(struct text *line)
{
    struct text word = next_word(line), rest = *line, more = next_word(&rest);
    if (word.len && more.len && more.at[0] == '=' && !memchr(word.at, '=', word.len)) {
        *line = rest;
        word.len = (size_t)(more.at + more.len - word.at);
        more = next_word(&rest);
    }
    if (word.len && word.at[word.len - 1] == '=' && more.len) {
        *line = rest;
        word.len = (size_t)(more.at + more.len - word.at);
    }
    return word;
}

static int read_line(struct builder *b, struct text line, struct err *e)
{
    struct host_entry entry;
    const char *comment = line.len ? memchr(line.at, '#', line.len) : NULL;
    if (line.len && memchr(line.at, '\0', line.len))
        return err_set(e, ERR_USAGE, "%s:%u: a NUL byte: this is no hostfile", b->path, b->line);
    if (line.len > LINE_SIZE)
        return err_set(e, ERR_USAGE, "%s:%u: the line is longer than %d bytes", b->path, b->line, LINE_SIZE);
    line.len = comment ? (size_t)(comment - line.at) : line.len;
    struct text name = next_word(&line);
    if (!name.len)
        return 0;
    const char *wrong = host_entry_read(name, &entry);
    if (wrong)
        return bad_entry(b, name, e, wrong);
    for (struct text word = next_setting(&line); word.len; word = next_setting(&line)) {
        wrong = host_entry_setting(word, &entry);
        if (wrong)
            return bad_entry(b, word, e, wrong);
    }
    return add_entry(b, &entry, name, e);
}

int hosts_parse_file(struct host_list *list, const char *bytes, size_t len, const char *path, struct err *e)
{
    struct builder b = {.list = list, .path = path};
    *list = (struct host_list){0};
    for (size_t at = 0; at < len;) {
        const char *end = memchr(bytes + at, '\n', len - at);
        size_t n = end ? (size_t)(end - bytes) - at : len - at;
        b.line++;
        if (read_line(&b, (struct text){bytes + at, n}, e))
            return finish_list(&b, -1);
        at += n + 1;
    }
    if (!list->count)
        err_set(e, ERR_USAGE, "%s: no host is named in this hostfile", path);
    return finish_list(&b, list->count ? 0 : -1);
}

static int refuse_file(const char *what, const char *path, int errnum, struct err *e)
{
    return err_set(e, ERR_USAGE, "cannot read %s %s: %s", what, path, strerror(errnum));
}

/* Everything that can be read from fd, at most HOSTS_FILE_MAX bytes; the caller frees it. */
static char *read_all(int fd, size_t *len, const char *what, const char *path, struct err *e)
{
    size_t room = 0;
    char *bytes = NULL;
    for (*len = 0;;) {
        if (*len == room) {
            room = room ? room * 2 : 65536;
            char *more = room <= HOSTS_FILE_MAX ? realloc(bytes, room) : NULL;
            if (!more) {
                err_set(e, ERR_USAGE, "cannot read %s %s: no memory for more than %zu KiB", what, path,
                        *len >> 10);
                break;
            }
            bytes = more;
        }
        ssize_t n = read(fd, bytes + *len, room - *len);
        if (n == 0)
            return bytes;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            refuse_file(what, path, errno, e);
            break;
        }
        *len += (size_t)n;
    }
    free(bytes);
    return NULL;
}

char *hosts_load(const char *what, const char *path, size_t *len, struct err *e)
{
    *len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        refuse_file(what, path, errno, e);
        return NULL;
    }
    char *bytes = read_all(fd, len, what, path, e);
    close(fd);
    return bytes;
}

int hosts_read_file(struct host_list *list, const char *path, struct err *e)
{
    size_t len;
    *list = (struct host_list){0};
    char *bytes = hosts_load("hostfile", path, &len, e);
    int rc = bytes ? hosts_parse_file(list, bytes, len, path, e) : -1;
    free(bytes);
    return rc;
}

/* ---- questions to a list ------------------------------------------------------------------------------- */

int hosts_localhost(struct host_list *list, uint32_t slots, struct err *e)
{
    list->count = 1;
    list->host = calloc(1, sizeof *list->host);
    char *name = strdup("localhost");
    if (!list->host || !name) {
        free(list->host);
        free(name);
        *list = (struct host_list){0};
        return err_set(e, ERR_MEMORY, "no memory for the list of hosts");
    }
    list->host[0] = (struct host_spec){.name = name, .slots = slots, .line = 1, .bare = slots == 0};
    return 0;
}

void hosts_free(struct host_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->host[i].name);
        free(list->host[i].user);
    }
    free(list->host);
    *list = (struct host_list){0};
}

void hosts_resolve(struct host_spec *host, uint32_t slots)
{
    if (host->slots)
        return;
    host->slots = slots ? slots : 1;
    if (host->slots > HOSTS_SLOTS_MAX)
        host->slots = HOSTS_SLOTS_MAX;
    if (host->max_slots && host->slots > host->max_slots)
        host->slots = host->max_slots;
}

bool hosts_is_local(const struct host_spec *host, const char *hostname)
{
    struct in_addr four;
    struct in6_addr six;
    const char *name = host->name;
    if (host->user)
        return false;
    if (host->here || strcasecmp(name, "localhost") == 0)
        return true;
    if (inet_pton(AF_INET, name, &four) == 1)
        return four.s_addr == htonl(INADDR_LOOPBACK); /* 127.0.0.2 may be a server of its own */
    if (inet_pton(AF_INET6, name, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    if (!hostname || !*hostname)
        return false;
    size_t short_len = strcspn(hostname, ".");
    return strcasecmp(name, hostname) == 0 ||
           (strncasecmp(name, hostname, short_len) == 0 && !name[short_len]);
}

/* An address to which a socket can be bound is this host's. */
static bool is_own_address(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool own = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    return own;
}

void hosts_full_name(const char *hostname, char *full, size_t size)
{
    struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM}, *list = NULL;
    full[0] = '\0';
    if (getaddrinfo(hostname, NULL, &hints, &list) != 0)
        return;
    if (list->ai_canonname && is_own_address(list))
        snprintf(full, size, "%s", list->ai_canonname);
    freeaddrinfo(list);
}

/* With a dot behind the short one, the name may be this host's or that of another host in another domain. */
static bool has_short_name(const char *name, const char *hostname)
{
    size_t len = strcspn(hostname, ".");
    return len > 0 && strncasecmp(name, hostname, len) == 0 && name[len] == '.';
}

static bool begins_name(const char *name, const char *full)
{
    size_t len = strlen(name);
    return strncasecmp(name, full, len) == 0 && (!full[len] || full[len] == '.');
}

void hosts_mark_own(struct host_list *hosts, const char *hostname, host_name_source *ask)
{
    char full[NI_MAXHOST];
    bool asked = false;
    for (size_t i = 0; i < hosts->count; i++) {
        struct host_spec *host = &hosts->host[i];
        if (hosts_is_local(host, hostname) || !has_short_name(host->name, hostname))
            continue;
        if (!asked)
            ask(hostname, full, sizeof full);
        asked = true;
        host->here = begins_name(host->name, full);
    }
}
