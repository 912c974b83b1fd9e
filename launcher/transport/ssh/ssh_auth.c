/* Public key authentication.
 *
 * 1. Every key is looked at before the host hears of one: the -i file, the identities of ssh-agent, the
 * IdentityFile entries. A key that is in a file and in the agent is tried once, through the agent. Servers
 * close the connection after a few refusals (MaxAuthTries), so what the user named comes first. RSA keys come
 * last where libssh2 can hardly use them: before 1.11 libssh2 had SHA-1 signatures only.
 * 2. They are tried in that order. Refused: the next one.
 * 3. None left: one error names every key and what became of it. When a key was among them that the ssh
 * program might have used (RSA, a certificate, a hardware key), the error is ERR_UNSUPPORTED and the launcher
 * takes that program. The agent is asked over the loop; a signature may take as long as its user needs.
 * libssh2 calls sign() again until it stops answering "would block". */
#include "launcher/transport/ssh/ssh_auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "launcher/transport/ssh/ssh_agent.h"
#include "launcher/transport/ssh/ssh_key_file.h"
#include "launcher/transport/ssh/ssh_session.h"

enum { ORDER_NAMED = 0, ORDER_AGENT = 1, ORDER_CONFIGURED = 2, ORDER_RSA = 10, ORDER_NEVER = 100 };

static bool same_blob(const struct ssh_key_info *a, const struct ssh_key_info *b)
{
    return a->blob && b->blob && a->blob_len == b->blob_len && memcmp(a->blob, b->blob, a->blob_len) == 0;
}

static struct ssh_key *find_blob(struct ssh_auth *a, const struct ssh_key_info *info)
{
    for (size_t i = 0; i < a->count; i++)
        if (same_blob(&a->key[i].info, info))
            return &a->key[i];
    return NULL;
}

/* Takes `info` over. */
static void add_key(struct ssh_auth *a, const char *name, size_t name_len, bool in_agent, int order,
                    struct ssh_key_info info)
{
    char *copy = a->count < SSH_KEYS_MAX
                     ? strndup(name, name_len < SSH_KEY_NAME_MAX ? name_len : SSH_KEY_NAME_MAX)
                     : NULL;
    if (!copy) {
        free(info.blob);
        return;
    }
    for (char *p = copy; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = '?'; /* a comment goes into a one-line error */
    a->key[a->count++] =
        (struct ssh_key){.name = copy, .in_agent = in_agent, .order = (uint8_t)order, .info = info};
}

/* A certificate beside the key is how its host wants to be asked; libssh2 has no way to show it. */
static bool has_certificate(const char *path)
{
    char certificate[SSH_PATH_MAX + 16];
    int n = snprintf(certificate, sizeof certificate, "%s-cert.pub", path);
    return n > 0 && (size_t)n < sizeof certificate && access(certificate, R_OK) == 0;
}

static void add_file(struct ssh_auth *a, const char *path, int order, bool named)
{
    struct ssh_key_info info;
    for (size_t i = 0; i < a->count; i++)
        if (!a->key[i].in_agent && strcmp(a->key[i].name, path) == 0)
            return;
    ssh_key_read(path, &info);
    a->ssh_could = a->ssh_could || has_certificate(path);
    if (info.kind == SSH_KEY_MISSING && !named)
        return; /* the defaults name files that few users have */
    struct ssh_key *known = info.blob ? find_blob(a, &info) : NULL;
    if (known) {
        known->order = (uint8_t)(order < known->order ? order : known->order);
        free(info.blob);
        return;
    }
    add_key(a, path, strlen(path), false, order, info);
}

static void add_identity(void *ctx, const uint8_t *blob, size_t blob_len, const uint8_t *comment,
                         size_t comment_len)
{
    struct ssh_auth *a = ctx;
    struct ssh_key_info info = {.kind = ssh_key_kind_of(blob, blob_len),
                                .blob = malloc(blob_len ? blob_len : 1),
                                .blob_len = blob_len};
    if (!info.blob)
        return;
    memcpy(info.blob, blob, blob_len);
    size_t len = comment_len;
    const char *name = (const char *)comment;
    add_key(a, len ? name : "key without a comment", len ? len : strlen("key without a comment"), true,
            ORDER_AGENT, info);
}

static int compare_order(const void *x, const void *y)
{
    const struct ssh_key *a = x, *b = y;
    return (int)a->order - (int)b->order;
}

bool ssh_rsa_has_sha2(void)
{
    return libssh2_version(0x010b00) != NULL;
}

/* Keys that cannot be tried get their outcome now. */
static void judge_key(struct ssh_auth *a, struct ssh_key *key)
{
    switch (key->info.kind) {
    case SSH_KEY_USABLE:
        return;
    case SSH_KEY_RSA:
        key->order += ssh_rsa_has_sha2() ? 0 : ORDER_RSA;
        return;
    case SSH_KEY_ENCRYPTED:
        key->outcome = "has a passphrase and is not in ssh-agent";
        break;
    case SSH_KEY_PUBLIC:
        key->outcome = "is a public key whose private half is not in ssh-agent";
        break;
    case SSH_KEY_UNSUPPORTED:
        key->outcome = "is of a kind that libssh2 does not know";
        a->ssh_could = true;
        break;
    case SSH_KEY_MISSING:
        key->outcome = "does not exist";
        break;
    case SSH_KEY_UNREADABLE:
        key->outcome = "cannot be read";
        break;
    }
    key->order = ORDER_NEVER;
}

/* IdentitiesOnly: of the agent's keys only those that a file names. */
static void drop_unnamed(struct ssh_auth *a)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->count; i++) {
        if (a->key[i].in_agent && a->key[i].order == ORDER_AGENT) {
            free(a->key[i].name);
            free(a->key[i].info.blob);
        } else {
            a->key[kept++] = a->key[i];
        }
    }
    a->count = kept;
}

static void collect_files(struct transport *t)
{
    struct ssh_auth *a = &t->auth;
    const char *named = t->target->identity_file;
    const struct ssh_config *c = &t->config;
    /* With IdentitiesOnly a file's order must differ from the agent's own, which tells whom drop_unnamed may
     * drop. */
    int order = c->identities_only ? ORDER_NAMED : ORDER_CONFIGURED;
    if (named)
        add_file(a, named, ORDER_NAMED, true);
    for (size_t i = 0; i < c->identity.count; i++)
        add_file(a, c->identity.path[i], order, false);
    if (c->identities_only)
        drop_unnamed(a);
    for (size_t i = 0; i < a->count; i++)
        judge_key(a, &a->key[i]);
    for (size_t i = 1; i < a->count; i++) { /* few, and the order among equals is the user's */
        struct ssh_key moving = a->key[i];
        size_t j = i;
        for (; j > 0 && compare_order(&a->key[j - 1], &moving) > 0; j--)
            a->key[j] = a->key[j - 1];
        a->key[j] = moving;
    }
}

/* libssh2 wants the bare signature; it is called again after SSH_AGAIN. */
static int sign_data(LIBSSH2_SESSION *session, unsigned char **out, size_t *out_len,
                     const unsigned char *data, size_t len, void **abstract)
{
    struct ssh_auth *a = *abstract;
    const struct ssh_key *key = &a->key[a->current];
    const uint8_t *signature;
    size_t answer_len, signature_len;
    if (!a->asked) {
        a->asked = a->waiting = true;
        ssh_agent_ask_signature(&a->agent, key->info.blob, key->info.blob_len, data, len);
    }
    if (a->agent.busy)
        return LIBSSH2_ERROR_EAGAIN;
    const uint8_t *answer = ssh_agent_answer(&a->agent, &answer_len);
    if (!answer || !ssh_agent_signature(answer, answer_len, &signature, &signature_len) ||
        !(*out = malloc(signature_len + 1)))
        return -1;
    memcpy(*out, signature, signature_len);
    *out_len = signature_len;
    return 0;
}

static int try_key(struct transport *t, struct ssh_key *key)
{
    struct ssh_auth *a = &t->auth;
    void *abstract = a;
    if (key->in_agent)
        return libssh2_userauth_publickey(t->session, t->config.user, key->info.blob, key->info.blob_len,
                                          sign_data, &abstract);
    return libssh2_userauth_publickey_fromfile_ex(t->session, t->config.user,
                                                  (unsigned)strlen(t->config.user), NULL, key->name, NULL);
}

static void key_failed(struct ssh_auth *a, struct ssh_key *key, int rc)
{
    bool agent_refused = key->in_agent && a->asked && rc == LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED;
    key->outcome = agent_refused ? "ssh-agent would not sign with it" : "refused";
    if (key->info.kind == SSH_KEY_RSA && !ssh_rsa_has_sha2()) {
        key->outcome = "refused (RSA: libssh2 has no SHA-2 signatures)";
        a->ssh_could = true;
    } else if (!key->in_agent && rc == LIBSSH2_ERROR_FILE) {
        key->outcome = "cannot be parsed by libssh2";
        a->ssh_could = true;
    }
}

/* SSH_DONE when one was accepted; SSH_FAILED when none was (without an error yet). */
static enum ssh_result try_keys(struct transport *t)
{
    struct ssh_auth *a = &t->auth;
    for (; a->current < a->count; a->current++, a->asked = false) {
        struct ssh_key *key = &a->key[a->current];
        if (key->outcome)
            continue;
        int rc = try_key(t, key);
        if (rc == LIBSSH2_ERROR_EAGAIN)
            return SSH_AGAIN;
        if (rc == 0) {
            log_debug("%s: user %s is authenticated by %s", t->config.hostname, t->config.user, key->name);
            return SSH_DONE;
        }
        key_failed(a, key, rc);
        log_debug("%s: key %s: %s", t->config.hostname, key->name, key->outcome);
        if (rc == LIBSSH2_ERROR_SOCKET_DISCONNECT || rc == LIBSSH2_ERROR_SOCKET_RECV ||
            rc == LIBSSH2_ERROR_SOCKET_SEND) {
            key->outcome = "refused, and the host closed the connection (MaxAuthTries)";
            break;
        }
    }
    return SSH_FAILED;
}

static void list_keys(const struct ssh_auth *a, char *out, size_t size)
{
    size_t len = 0;
    out[0] = '\0';
    for (size_t i = 0; i < a->count && len < size; i++) {
        const struct ssh_key *k = &a->key[i];
        int n = snprintf(out + len, size - len, "%s%s%s: %s", i ? "; " : "", k->in_agent ? "agent's " : "",
                         k->name, k->outcome ? k->outcome : "not tried");
        len += n > 0 ? (size_t)n : 0;
    }
}

/* The methods that the host would take, known once a method was refused. "none" may even be enough. */
static enum ssh_result explain_refusal(struct transport *t)
{
    struct ssh_auth *a = &t->auth;
    char keys[ERR_TEXT_MAX - 160];
    const char *methods = NULL;
    if (!t->wire.peer_gone) {
        methods = libssh2_userauth_list(t->session, t->config.user, (unsigned)strlen(t->config.user));
        if (!methods && libssh2_userauth_authenticated(t->session))
            return SSH_DONE;
        if (!methods && libssh2_session_last_errno(t->session) == LIBSSH2_ERROR_EAGAIN)
            return SSH_AGAIN;
    }
    for (size_t i = a->current; i < a->count; i++) /* the host closed before they had their turn */
        a->ssh_could =
            a->ssh_could || (!a->key[i].outcome && a->key[i].info.kind == SSH_KEY_RSA && !ssh_rsa_has_sha2());
    bool other = methods && (strstr(methods, "gssapi") || strstr(methods, "hostbased"));
    bool no_keys = methods && !strstr(methods, "publickey");
    list_keys(a, keys, sizeof keys);
    enum err_code code = a->ssh_could || other ? ERR_UNSUPPORTED : ERR_HOST;
    if (no_keys)
        err_set(&t->err, code, "%s accepts no public keys for user %s, only %s", t->config.hostname,
                t->config.user, methods);
    else if (a->count == 0)
        err_set(&t->err, code,
                "no key to authenticate with as %s@%s: none in ssh-agent, no -i, no identity file in ~/.ssh",
                t->config.user, t->config.hostname);
    else
        err_set(&t->err, code, "no key accepted for %s@%s; tried: %s", t->config.user, t->config.hostname,
                keys);
    if (no_keys)
        err_hint(&t->err, "set PubkeyAuthentication yes in that host's sshd_config, then install a key");
    else
        err_hint(&t->err,
                 "`ssh-copy-id %s@%s` installs a key; `ssh-add` loads one with a passphrase; -i names one",
                 t->config.user, t->config.hostname);
    return SSH_FAILED;
}

static void agent_answered(void *ctx)
{
    struct transport *t = ctx;
    t->auth.waiting = false;
    ssh_advance(t);
}

static void begin_keys(struct transport *t)
{
    struct ssh_auth *a = &t->auth;
    a->state = SSH_AUTH_LISTING;
    if (!t->config.agent[0] || ssh_agent_open(&a->agent, t->loop, t->config.agent, agent_answered, t) < 0)
        return;
    a->agent_open = a->waiting = true;
    t->open_handles++;
    ssh_agent_ask_identities(&a->agent);
}

enum ssh_result ssh_step_authenticate(struct transport *t)
{
    struct ssh_auth *a = &t->auth;
    enum ssh_result result;
    size_t len;
    if (a->state == SSH_AUTH_BEGIN)
        begin_keys(t);
    if (a->state == SSH_AUTH_LISTING) {
        if (a->agent_open && a->agent.busy)
            return SSH_AGAIN;
        const uint8_t *answer = a->agent_open ? ssh_agent_answer(&a->agent, &len) : NULL;
        if (answer && !ssh_agent_identities(answer, len, add_identity, a))
            log_warning("ssh-agent at %s gave an answer that is no list of identities", t->config.agent);
        collect_files(t);
        a->state = t->config.no_public_key ? SSH_AUTH_EXPLAINING : SSH_AUTH_TRYING;
    }
    if (a->state == SSH_AUTH_TRYING) {
        result = try_keys(t);
        if (result != SSH_FAILED)
            return result;
        a->state = SSH_AUTH_EXPLAINING;
    }
    return explain_refusal(t);
}
