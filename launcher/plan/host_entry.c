/* The forms of host_entry.h. Each function cuts one piece off and says what is wrong with it; the order is
 * user, name, slots. */
#include "launcher/plan/host_entry.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "launcher/plan/hosts.h"

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
const char *host_entry_read(struct text t, struct host_entry *entry)
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
    size_t len = strlen(key);
    if (word.len <= len || word.at[len] != '=')
        return (struct text){0};
    for (size_t i = 0; i < len; i++)
        if (tolower((unsigned char)(word.at[i] == '-' ? '_' : word.at[i])) != key[i])
            return (struct text){0};
    return text_part(word, len + 1, word.len);
}

/* slots=N or max_slots=N. */
const char *host_entry_setting(struct text word, struct host_entry *entry)
{
    struct text slots = value_of(word, "slots"), most = value_of(word, "max_slots");
    uint32_t *field = slots.at ? &entry->slots : most.at ? &entry->max_slots : NULL;
    if (!field)
        return "expected slots=N, max_slots=N or a comment";
    if (*field)
        return "the number of slots is given twice";
    return read_slots(slots.at ? slots : most, field) ? "must be a number " SLOTS_WANTED : NULL;
}
