/* An OpenSSH key is "openssh-key-v1\0", cipher, kdf, kdf options, a count, the public key, ...: cipher and
 * public key are in the clear. The older PEM forms name the type in their first line and encryption in their
 * second; their public half is in the .pub file. */
#include "launcher/transport/ssh/ssh_key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEY_FILE_MAX  16384
#define OPENSSH_BEGIN "-----BEGIN OPENSSH PRIVATE KEY-----"
#define OPENSSH_MAGIC "openssh-key-v1"

enum ssh_key_kind ssh_key_kind_of(const uint8_t *blob, size_t len)
{
    static const char *const usable[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                         "ecdsa-sha2-nistp521"};
    char type[KNOWN_TYPE_MAX];
    if (!known_key_type(blob, len, type))
        return SSH_KEY_UNSUPPORTED;
    for (size_t i = 0; i < sizeof usable / sizeof *usable; i++)
        if (strcmp(type, usable[i]) == 0)
            return SSH_KEY_USABLE;
    return strcmp(type, "ssh-rsa") == 0 ? SSH_KEY_RSA : SSH_KEY_UNSUPPORTED;
}

static bool contains_text(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

/* A string with a 32-bit length before it; false when it would reach beyond the end. */
static bool take_string(const uint8_t **p, size_t *left, const uint8_t **string, size_t *len)
{
    if (*left < 4)
        return false;
    const uint8_t *b = *p;
    size_t n = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
    if (n > *left - 4)
        return false;
    *string = b + 4;
    *len = n;
    *p += 4 + n;
    *left -= 4 + n;
    return true;
}

static void keep_blob(struct ssh_key_info *info, const uint8_t *blob, size_t len)
{
    info->blob = len ? malloc(len) : NULL;
    if (!info->blob)
        return;
    memcpy(info->blob, blob, len);
    info->blob_len = len;
}

static void classify_decoded(const uint8_t *p, size_t left, struct ssh_key_info *info)
{
    const uint8_t *cipher, *skipped, *public_key;
    size_t cipher_len, len;
    if (left < sizeof OPENSSH_MAGIC || memcmp(p, OPENSSH_MAGIC, sizeof OPENSSH_MAGIC) != 0)
        return;
    p += sizeof OPENSSH_MAGIC;
    left -= sizeof OPENSSH_MAGIC;
    if (!take_string(&p, &left, &cipher, &cipher_len) || !take_string(&p, &left, &skipped, &len) ||
        !take_string(&p, &left, &skipped, &len) || left < 4)
        return;
    p += 4; /* how many keys: ssh writes one */
    left -= 4;
    if (!take_string(&p, &left, &public_key, &len))
        return;
    bool encrypted = cipher_len != 4 || memcmp(cipher, "none", 4) != 0;
    info->kind = encrypted ? SSH_KEY_ENCRYPTED : ssh_key_kind_of(public_key, len);
    keep_blob(info, public_key, len);
}

/* The base64 body between the first line and the last, without its line breaks. */
static void classify_openssh(const char *text, size_t len, struct ssh_key_info *info)
{
    const char *begin =
        (const char *)memmem(text, len, OPENSSH_BEGIN, strlen(OPENSSH_BEGIN)) + strlen(OPENSSH_BEGIN);
    const char *end = memmem(begin, len - (size_t)(begin - text), "-----END", 8);
    size_t n = 0, decoded = 0;
    char *body = end ? malloc((size_t)(end - begin) + 1) : NULL;
    for (const char *p = begin; body && p < end; p++)
        if (*p != '\n' && *p != '\r' && *p != ' ')
            body[n++] = *p;
    uint8_t *bytes = body ? known_base64(body, n, &decoded) : NULL;
    if (bytes)
        classify_decoded(bytes, decoded, info);
    free(bytes);
    free(body);
}

/* "type base64 comment" */
static void classify_public(const char *text, size_t len, struct ssh_key_info *info)
{
    const char *blank = memchr(text, ' ', len);
    char type[KNOWN_TYPE_MAX];
    if (!blank)
        return;
    const char *key = blank + 1, *end = key;
    while (end < text + len && *end != ' ' && *end != '\n' && *end != '\r')
        end++;
    uint8_t *blob = known_base64(key, (size_t)(end - key), &info->blob_len);
    if (blob && known_key_type(blob, info->blob_len, type) && strlen(type) == (size_t)(blank - text) &&
        memcmp(type, text, strlen(type)) == 0) {
        info->kind = SSH_KEY_PUBLIC;
        info->blob = blob;
    } else {
        info->blob_len = 0;
        free(blob);
    }
}

void ssh_key_classify(const char *text, size_t len, struct ssh_key_info *info)
{
    *info = (struct ssh_key_info){.kind = SSH_KEY_UNSUPPORTED};
    if (contains_text(text, len, OPENSSH_BEGIN))
        classify_openssh(text, len, info);
    else if (contains_text(text, len, "ENCRYPTED"))
        info->kind = SSH_KEY_ENCRYPTED;
    else if (contains_text(text, len, "-----BEGIN RSA PRIVATE KEY-----"))
        info->kind = SSH_KEY_RSA;
    else if (contains_text(text, len, "-----BEGIN EC PRIVATE KEY-----") ||
             contains_text(text, len, "-----BEGIN PRIVATE KEY-----"))
        info->kind = SSH_KEY_USABLE;
    else
        classify_public(text, len, info);
}

/* Bytes read; -1 when it cannot be opened. */
static ssize_t read_file(const char *path, char *text, size_t size)
{
    size_t len = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -1;
    while (len < size && (n = read(fd, text + len, size - len)) > 0)
        len += (size_t)n;
    close(fd);
    return n < 0 ? -1 : (ssize_t)len;
}

void ssh_key_read(const char *path, struct ssh_key_info *info)
{
    char text[KEY_FILE_MAX], public_path[4096 + 8];
    ssize_t n = read_file(path, text, sizeof text);
    if (n < 0) {
        *info = (struct ssh_key_info){.kind = errno == ENOENT || errno == ENOTDIR ? SSH_KEY_MISSING
                                                                                  : SSH_KEY_UNREADABLE};
    } else {
        ssh_key_classify(text, (size_t)n, info);
    }
    explicit_bzero(text, sizeof text);
    if (info->blob)
        return;
    snprintf(public_path, sizeof public_path, "%s.pub", path);
    struct ssh_key_info public_half = {.kind = SSH_KEY_MISSING};
    n = read_file(public_path, text, sizeof text);
    if (n > 0)
        ssh_key_classify(text, (size_t)n, &public_half);
    if (public_half.kind != SSH_KEY_PUBLIC) {
        free(public_half.blob);
        return;
    }
    info->blob = public_half.blob;
    info->blob_len = public_half.blob_len;
    if (info->kind == SSH_KEY_USABLE)
        info->kind =
            ssh_key_kind_of(info->blob, info->blob_len); /* PKCS#8 does not name its type in the first line */
    else if (info->kind == SSH_KEY_MISSING)
        info->kind = SSH_KEY_PUBLIC;
}
