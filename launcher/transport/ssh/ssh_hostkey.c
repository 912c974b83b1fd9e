/* Is this the host that the user knows? Asked before anything is told to it.
 *
 * known_hosts is read before the key exchange: libssh2 must ask for a type that we have a key of, or a host
 * that has several keys looks unknown. After the exchange the key is compared, strictly as ssh does with
 * nobody to ask. The error names what a user needs to decide: host, type, fingerprint, file and line, and the
 * remedy. */
#include <arpa/inet.h>
#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "common/base/log.h"
#include "launcher/transport/ssh/ssh_auth.h"
#include "launcher/transport/ssh/ssh_session.h"

#define FINGERPRINT_MAX 64

/* "SHA256:..." as ssh prints it. */
static void format_fingerprint(const uint8_t *blob, size_t len, char out[FINGERPRINT_MAX])
{
    unsigned char hash[SHA256_DIGEST_LENGTH], text[48];
    SHA256(blob, len, hash);
    EVP_EncodeBlock(text, hash, sizeof hash);
    snprintf(out, FINGERPRINT_MAX, "SHA256:%.43s", (const char *)text);
}

static void lower_case(char *s)
{
    for (; *s; s++)
        *s = (char)tolower((unsigned char)*s);
}

/* The name that known_hosts has for this host; `plain` is the one without the port, or empty when it is the
 * same. */
static void host_names(const struct transport *t, char *name, char *plain, size_t size)
{
    const struct ssh_config *c = &t->config;
    plain[0] = '\0';
    if (c->host_key_alias[0]) {
        snprintf(name, size, "%s", c->host_key_alias);
    } else if (c->port == 22) {
        snprintf(name, size, "%s", c->hostname);
    } else {
        snprintf(name, size, "[%s]:%u", c->hostname, (unsigned)c->port);
        snprintf(plain, size, "%s", c->hostname);
    }
    lower_case(name);
    lower_case(plain);
}

static int read_files(const struct ssh_paths *files, struct known_hosts *known, const char *name,
                      struct err *e)
{
    for (size_t i = 0; i < files->count; i++)
        if (known_hosts_read(known, files->path[i], name, e) < 0)
            return -1;
    return 0;
}

/* Reads known_hosts and fills `list` with the key types to ask for; empty: no preference. */
static int choose_types(struct transport *t, char *list, size_t size)
{
    static const char *const types[] = {"ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384",
                                        "ecdsa-sha2-nistp521", "ssh-rsa"};
    char name[SSH_NAME_MAX + 16], plain[SSH_NAME_MAX + 16];
    host_names(t, name, plain, sizeof name);
    list[0] = '\0';
    if (read_files(&t->config.user_known, &t->known, name, &t->err) < 0 ||
        read_files(&t->config.global_known, &t->known, name, &t->err) < 0)
        return -1;
    if (plain[0] && (read_files(&t->config.user_known, &t->known_plain, plain, &t->err) < 0 ||
                     read_files(&t->config.global_known, &t->known_plain, plain, &t->err) < 0))
        return -1;
    const struct known_hosts *known = t->known.count ? &t->known : &t->known_plain;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (!known_hosts_has_type(known, types[i]))
            continue;
        /* A known RSA key may sign by SHA-2 (RFC 8332), which is all that servers of today offer. */
        bool rsa = strcmp(types[i], "ssh-rsa") == 0 && ssh_rsa_has_sha2();
        size_t len = strlen(list);
        snprintf(list + len, size - len, "%s%s%s", len ? "," : "", rsa ? "rsa-sha2-512,rsa-sha2-256," : "",
                 types[i]);
    }
    if (!list[0] && known_hosts_has_authority(known)) {
        err_set(&t->err, ERR_UNSUPPORTED,
                "%s is known by a certificate authority, which libssh2 cannot check", t->config.hostname);
        return -1;
    }
    return 0;
}

static enum ssh_result begin_handshake(struct transport *t)
{
    char types[256];
    if (ssh_new_session(t) != SSH_DONE || choose_types(t, types, sizeof types) < 0)
        return SSH_FAILED;
    if (types[0] && libssh2_session_method_pref(t->session, LIBSSH2_METHOD_HOSTKEY, types) < 0)
        return ssh_library_failed(t, ERR_UNSUPPORTED, "host key types of known_hosts");
    return SSH_DONE;
}

enum ssh_result ssh_step_handshake(struct transport *t)
{
    if (!t->session && begin_handshake(t) != SSH_DONE)
        return SSH_FAILED;
    int rc = libssh2_session_handshake(t->session, t->wire.fd);
    switch (rc) {
    case 0:
        return SSH_DONE;
    case LIBSSH2_ERROR_EAGAIN:
        return SSH_AGAIN;
    case LIBSSH2_ERROR_KEX_FAILURE:
    case LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE:
    case LIBSSH2_ERROR_METHOD_NONE:
    case LIBSSH2_ERROR_METHOD_NOT_SUPPORTED:
    case LIBSSH2_ERROR_HOSTKEY_INIT:
        /* No algorithm in common: an RSA-only host key, or a server that has only what is newer than this
         * library. */
        return ssh_library_failed(t, ERR_UNSUPPORTED, "key exchange (libssh2 " LIBSSH2_VERSION ")");
    default:
        return ssh_library_failed(t, ERR_HOST, "key exchange");
    }
}

/* Names the host for people, as "host" or "host port N", and as arguments for ssh and ssh-keyscan. */
static void say_host(const struct transport *t, char *name, size_t size, char *arguments,
                     size_t arguments_size)
{
    if (t->config.port == 22) {
        snprintf(name, size, "%s", t->config.hostname);
        snprintf(arguments, arguments_size, "%s", t->config.hostname);
    } else {
        snprintf(name, size, "%s port %u", t->config.hostname, (unsigned)t->config.port);
        snprintf(arguments, arguments_size, "-p %u %s", (unsigned)t->config.port, t->config.hostname);
    }
}

static void unknown_key(struct transport *t, const char *type, const char *print)
{
    char name[SSH_NAME_MAX + 16], arguments[SSH_NAME_MAX + 16];
    const char *file = t->config.user_known.count ? t->config.user_known.path[0] : "~/.ssh/known_hosts";
    say_host(t, name, sizeof name, arguments, sizeof arguments);
    err_set(&t->err, ERR_HOST, "the %s host key of %s is unknown: %s is not in %s", type, name, print, file);
    err_hint(&t->err, "check the fingerprint, then connect once with `ssh %s`, or `ssh-keyscan %s >> %s`",
             arguments, arguments, file);
}

static void changed_key(struct transport *t, const char *type, const char *print,
                        const struct known_host *known)
{
    char name[SSH_NAME_MAX + 16], arguments[SSH_NAME_MAX + 16], expected[FINGERPRINT_MAX];
    char entry[SSH_NAME_MAX + 16], plain[SSH_NAME_MAX + 16];
    say_host(t, name, sizeof name, arguments, sizeof arguments);
    host_names(t, entry, plain, sizeof entry);
    format_fingerprint(known->blob, known->blob_len, expected);
    err_set(&t->err, ERR_HOST, "the host key of %s has changed: %s:%u has %s %s, the host shows %s", name,
            known->file, known->line, type, expected, print);
    err_hint(&t->err, "somebody may be listening in; if the host was reinstalled: ssh-keygen -R '%s' -f %s",
             entry, known->file);
}

static bool accept_anyway(struct transport *t, bool changed, const char *type, const char *print)
{
    bool accept =
        t->config.strict == SSH_STRICT_NO || (t->config.strict == SSH_STRICT_ACCEPT_NEW && !changed);
    if (accept)
        log_warning("%s: %s %s host key %s is accepted, as StrictHostKeyChecking in ssh's configuration says",
                    t->config.hostname, changed ? "changed" : "unknown", type, print);
    return accept;
}

/* As ssh: a host on another port than 22 may be known without it, but only by the same key. A key that is
 * revoked is so on every port. *which is set for every verdict but KNOWN_UNKNOWN. */
static enum known_verdict judge_key(const struct transport *t, const uint8_t *blob, size_t len,
                                    const struct known_host **which)
{
    const struct known_host *without_port = NULL;
    enum known_verdict verdict = known_hosts_check(&t->known, blob, len, which);
    enum known_verdict plain = known_hosts_check(&t->known_plain, blob, len, &without_port);
    if (plain != KNOWN_REVOKED && (verdict != KNOWN_UNKNOWN || plain == KNOWN_CHANGED))
        return verdict;
    *which = without_port;
    return plain;
}

enum ssh_result ssh_step_verify(struct transport *t)
{
    size_t len = 0;
    int kind;
    char type[KNOWN_TYPE_MAX], print[FINGERPRINT_MAX];
    const struct known_host *which = NULL;
    const uint8_t *blob = (const uint8_t *)libssh2_session_hostkey(t->session, &len, &kind);
    if (!blob || !known_key_type(blob, len, type))
        return ssh_library_failed(t, ERR_HOST, "the host showed no key");
    format_fingerprint(blob, len, print);
    enum known_verdict verdict = judge_key(t, blob, len, &which);
    switch (verdict) {
    case KNOWN_MATCH:
        log_debug("%s: %s host key %s is known, %s:%u", t->config.hostname, type, print, which->file,
                  which->line);
        return SSH_DONE;
    case KNOWN_REVOKED:
        err_set(&t->err, ERR_HOST, "the host key of %s is revoked by %s:%u: %s %s", t->config.hostname,
                which->file, which->line, type, print);
        return SSH_FAILED;
    case KNOWN_AUTHORITY:
        err_set(&t->err, ERR_UNSUPPORTED,
                "%s is known by a certificate authority, which libssh2 cannot check", t->config.hostname);
        return SSH_FAILED;
    case KNOWN_CHANGED:
        if (accept_anyway(t, true, type, print))
            return SSH_DONE;
        changed_key(t, type, print, which);
        return SSH_FAILED;
    case KNOWN_UNKNOWN:
        if (accept_anyway(t, false, type, print))
            return SSH_DONE;
        unknown_key(t, type, print);
        return SSH_FAILED;
    }
    return SSH_FAILED;
}
