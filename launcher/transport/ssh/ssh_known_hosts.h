/* known_hosts files: the lines that speak of one host, and what they say about a key. Reads files, otherwise
 * pure. libssh2's own reader knows neither wildcards nor @revoked nor @cert-authority. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define KNOWN_TYPE_MAX 64
#define KNOWN_FILE_MAX (16 * 1024 * 1024) /* bytes; a longer file is an error */

enum known_marker { KNOWN_PLAIN, KNOWN_REVOKED_MARK, KNOWN_AUTHORITY_MARK };

struct known_host {
    enum known_marker marker;
    char type[KNOWN_TYPE_MAX];
    uint8_t *blob; /* the public key as it travels */
    size_t blob_len;
    char *file;
    unsigned line;
};

/* Start with {0}. */
struct known_hosts {
    struct known_host *entry;
    size_t count, capacity;
};

/* Adds the lines of `text` that match `name`: a lower-case host name or address, or "[host]:port" when the
 * port is not 22. A line that is no known_hosts line is passed over, as ssh does. -1 only without memory. */
int known_hosts_parse(struct known_hosts *k, const char *file, const char *text, size_t len, const char *name,
                      struct err *e);
/* The same for a file; one that does not exist or may not be read has no lines. */
int known_hosts_read(struct known_hosts *k, const char *file, const char *name, struct err *e);
void known_hosts_free(struct known_hosts *k);

enum known_verdict {
    KNOWN_MATCH,
    KNOWN_UNKNOWN,  /* no line has a key of this type */
    KNOWN_CHANGED,  /* a line has another key of this type */
    KNOWN_REVOKED,  /* a @revoked line has this key */
    KNOWN_AUTHORITY /* no line has it, and a @cert-authority line could vouch for the host */
};

/* *line_out, when not NULL, receives the line of the verdict (NULL when there is none). */
enum known_verdict known_hosts_check(const struct known_hosts *k, const uint8_t *blob, size_t blob_len,
                                     const struct known_host **line_out);
/* True when a plain line has a key of this type. */
bool known_hosts_has_type(const struct known_hosts *k, const char *type);
bool known_hosts_has_authority(const struct known_hosts *k);

/* The type that a key names in itself; false when the blob is none. */
bool known_key_type(const uint8_t *blob, size_t len, char type[KNOWN_TYPE_MAX]);
/* Decodes base64 text into a new buffer; NULL when it is none. */
uint8_t *known_base64(const char *text, size_t len, size_t *out_len);
