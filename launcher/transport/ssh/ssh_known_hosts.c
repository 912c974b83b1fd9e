/* A line: [marker] patterns type base64 [comment]. The patterns are a list with * ? and ! or one
 * |1|salt|hash, the HMAC-SHA1 of the name. A negated pattern that matches rules the line out whatever else
 * matches. The key must name the same type as the line. Everything is a slice of the text with a length;
 * nothing is changed before a line was understood whole. */
#include "launcher/transport/ssh/ssh_known_hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE64_MAX 16384
#define SHA1_BYTES 20

struct slice {
    const char *at;
    size_t len;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\0';
}

static struct slice next_field(struct slice *line)
{
    while (line->len && is_blank(*line->at))
        line->at++, line->len--;
    struct slice field = {line->at, 0};
    while (line->len && !is_blank(*line->at))
        line->at++, line->len--, field.len++;
    return field;
}

static bool slice_is(struct slice s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.at, text, s.len) == 0;
}

uint8_t *known_base64(const char *text, size_t len, size_t *out_len)
{
    if (len == 0 || len % 4 || len > BASE64_MAX)
        return NULL;
    /* EVP_DecodeBlock passes over blanks at both ends; a field has none, and it counts padding as bytes. */
    uint8_t *out = malloc(len / 4 * 3);
    int n = out ? EVP_DecodeBlock(out, (const unsigned char *)text, (int)len) : -1;
    if (n < 0) {
        free(out);
        return NULL;
    }
    size_t padding = (size_t)(text[len - 1] == '=') + (size_t)(text[len - 2] == '=');
    if ((size_t)n < padding) {
        free(out);
        return NULL;
    }
    *out_len = (size_t)n - padding;
    return out;
}

bool known_key_type(const uint8_t *blob, size_t len, char type[KNOWN_TYPE_MAX])
{
    if (len < 4)
        return false;
    size_t n = (size_t)blob[0] << 24 | (size_t)blob[1] << 16 | (size_t)blob[2] << 8 | blob[3];
    if (n == 0 || n >= KNOWN_TYPE_MAX || n > len - 4 || memchr(blob + 4, '\0', n))
        return false;
    memcpy(type, blob + 4, n);
    type[n] = '\0';
    return true;
}

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* * and ? as ssh has them. Remembers the last star only, so the time is bounded by the product of the
 * lengths. */
static bool match_pattern(struct slice pattern, const char *name)
{
    size_t p = 0, star = SIZE_MAX;
    const char *after_star = NULL;
    while (*name) {
        if (p < pattern.len && pattern.at[p] == '*') {
            star = p++;
            after_star = name;
        } else if (p < pattern.len && (pattern.at[p] == '?' || to_lower(pattern.at[p]) == *name)) {
            p++;
            name++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            name = ++after_star;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.at[p] == '*')
        p++;
    return p == pattern.len;
}

static bool match_patterns(struct slice list, const char *name)
{
    bool found = false;
    while (list.len) {
        const char *comma = memchr(list.at, ',', list.len);
        struct slice one = {list.at, comma ? (size_t)(comma - list.at) : list.len};
        size_t used = one.len + (comma ? 1 : 0);
        list.at += used;
        list.len -= used;
        bool negated = one.len && *one.at == '!';
        if (negated)
            one.at++, one.len--;
        if (!one.len || !match_pattern(one, name))
            continue;
        if (negated)
            return false;
        found = true;
    }
    return found;
}

/* |1|base64 salt|base64 HMAC-SHA1(salt, name) */
static bool match_hashed(struct slice field, const char *name)
{
    const char *salt = field.at + 3, *end = field.at + field.len;
    const char *bar = memchr(salt, '|', (size_t)(end - salt));
    size_t salt_len = 0, hash_len = 0;
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int mac_len = 0;
    if (!bar)
        return false;
    uint8_t *key = known_base64(salt, (size_t)(bar - salt), &salt_len);
    uint8_t *hash = known_base64(bar + 1, (size_t)(end - bar - 1), &hash_len);
    bool same =
        key && hash && salt_len == SHA1_BYTES && hash_len == SHA1_BYTES &&
        HMAC(EVP_sha1(), key, (int)salt_len, (const unsigned char *)name, strlen(name), mac, &mac_len) &&
        mac_len == SHA1_BYTES && memcmp(mac, hash, SHA1_BYTES) == 0;
    free(key);
    free(hash);
    return same;
}

static bool match_field(struct slice field, const char *name)
{
    if (field.len >= 3 && memcmp(field.at, "|1|", 3) == 0)
        return match_hashed(field, name);
    return match_patterns(field, name);
}

static int add_line(struct known_hosts *k, const struct known_host *found, const char *file, struct err *e)
{
    if (k->count == k->capacity) {
        size_t capacity = k->capacity ? 2 * k->capacity : 4;
        struct known_host *grown = realloc(k->entry, capacity * sizeof *grown);
        if (!grown)
            return err_set(e, ERR_MEMORY, "no memory for known hosts");
        k->entry = grown;
        k->capacity = capacity;
    }
    char *copy = strdup(file);
    if (!copy)
        return err_set(e, ERR_MEMORY, "no memory for known hosts");
    k->entry[k->count] = *found;
    k->entry[k->count++].file = copy;
    return 0;
}

static int parse_line(struct known_hosts *k, const char *file, unsigned number, struct slice line,
                      const char *name, struct err *e)
{
    struct known_host found = {.marker = KNOWN_PLAIN, .line = number};
    struct slice field = next_field(&line);
    if (!field.len || *field.at == '#')
        return 0;
    if (*field.at == '@') {
        if (slice_is(field, "@revoked"))
            found.marker = KNOWN_REVOKED_MARK;
        else if (slice_is(field, "@cert-authority"))
            found.marker = KNOWN_AUTHORITY_MARK;
        else
            return 0;
        field = next_field(&line);
    }
    struct slice type = next_field(&line), key = next_field(&line);
    if (!type.len || !key.len || !match_field(field, name))
        return 0;
    found.blob = known_base64(key.at, key.len, &found.blob_len);
    if (!found.blob || !known_key_type(found.blob, found.blob_len, found.type) ||
        !slice_is(type, found.type)) {
        free(found.blob);
        return 0;
    }
    if (add_line(k, &found, file, e) < 0) {
        free(found.blob);
        return -1;
    }
    return 0;
}

int known_hosts_parse(struct known_hosts *k, const char *file, const char *text, size_t len, const char *name,
                      struct err *e)
{
    for (unsigned number = 1; len; number++) {
        const char *newline = memchr(text, '\n', len);
        struct slice line = {text, newline ? (size_t)(newline - text) : len};
        size_t used = line.len + (newline ? 1 : 0);
        text += used;
        len -= used;
        if (parse_line(k, file, number, line, name, e) < 0)
            return -1;
    }
    return 0;
}

static int read_all(int fd, const char *file, char **text, size_t *len, struct err *e)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    if (st.st_size > KNOWN_FILE_MAX)
        return err_set(e, ERR_HOST, "%s is longer than %d bytes", file, KNOWN_FILE_MAX);
    char *bytes = malloc((size_t)st.st_size);
    if (!bytes)
        return err_set(e, ERR_MEMORY, "no memory for %s", file);
    ssize_t n = 0;
    while (*len < (size_t)st.st_size && (n = read(fd, bytes + *len, (size_t)st.st_size - *len)) > 0)
        *len += (size_t)n;
    *text = bytes;
    return n < 0 ? err_sys(e, errno, "cannot read %s", file) : 0;
}

int known_hosts_read(struct known_hosts *k, const char *file, const char *name, struct err *e)
{
    char *text = NULL;
    size_t len = 0;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    int rc = read_all(fd, file, &text, &len, e);
    if (rc == 0 && text)
        rc = known_hosts_parse(k, file, text, len, name, e);
    free(text);
    close(fd);
    return rc;
}

void known_hosts_free(struct known_hosts *k)
{
    for (size_t i = 0; i < k->count; i++) {
        free(k->entry[i].blob);
        free(k->entry[i].file);
    }
    free(k->entry);
    *k = (struct known_hosts){0};
}

enum known_verdict known_hosts_check(const struct known_hosts *k, const uint8_t *blob, size_t blob_len,
                                     const struct known_host **line_out)
{
    const struct known_host *revoked = NULL, *same = NULL, *other = NULL, *authority = NULL;
    char type[KNOWN_TYPE_MAX] = "";
    known_key_type(blob, blob_len, type);
    for (size_t i = 0; i < k->count; i++) {
        const struct known_host *h = &k->entry[i];
        bool equal = h->blob_len == blob_len && memcmp(h->blob, blob, blob_len) == 0;
        if (h->marker == KNOWN_AUTHORITY_MARK)
            authority = h;
        else if (h->marker == KNOWN_REVOKED_MARK)
            revoked = equal ? h : revoked;
        else if (equal)
            same = h;
        else if (!other && strcmp(h->type, type) == 0)
            other = h;
    }
    const struct known_host *reason = revoked ? revoked : same ? same : authority ? authority : other;
    if (line_out)
        *line_out = reason;
    if (!reason)
        return KNOWN_UNKNOWN;
    return revoked ? KNOWN_REVOKED : same ? KNOWN_MATCH : authority ? KNOWN_AUTHORITY : KNOWN_CHANGED;
}

bool known_hosts_has_type(const struct known_hosts *k, const char *type)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->entry[i].marker == KNOWN_PLAIN && strcmp(k->entry[i].type, type) == 0)
            return true;
    return false;
}

bool known_hosts_has_authority(const struct known_hosts *k)
{
    for (size_t i = 0; i < k->count; i++)
        if (k->entry[i].marker == KNOWN_AUTHORITY_MARK)
            return true;
    return false;
}
