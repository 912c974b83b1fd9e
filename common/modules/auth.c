/* Module `auth`: the operations of common/net/auth.h on OpenSSL's libcrypto. */
#include "common/net/auth.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "common/base/secret.h"
#include "common/process/module.h"

extern const char hvd_module_version[];
extern const struct auth_ops hvd_auth_ops;

MODULE_DEFINE_VERSION;

static int make_hmac(const uint8_t key[AUTH_KEY_SIZE], const struct auth_part *part, size_t parts,
                     uint8_t mac[AUTH_MAC_SIZE])
{
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                 OSSL_PARAM_construct_end()};
    size_t size = 0;
    EVP_MAC *algorithm = EVP_MAC_fetch(NULL, "HMAC", NULL);
    EVP_MAC_CTX *context = algorithm ? EVP_MAC_CTX_new(algorithm) : NULL;
    int ok = context && EVP_MAC_init(context, key, AUTH_KEY_SIZE, params);
    for (size_t i = 0; ok && i < parts; i++)
        ok = EVP_MAC_update(context, part[i].data, part[i].size);
    ok = ok && EVP_MAC_final(context, mac, &size, AUTH_MAC_SIZE) && size == AUTH_MAC_SIZE;
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(algorithm);
    return ok ? 0 : -1;
}

static int compute_hmac(const uint8_t key[AUTH_KEY_SIZE], const struct auth_part *part, size_t parts,
                        uint8_t mac[AUTH_MAC_SIZE])
{
    int rc = make_hmac(key, part, parts, mac);
    secret_wipe_stack();
    return rc;
}

static int compute_digest(const void *data, size_t size, uint8_t out[AUTH_DIGEST_SIZE])
{
    return EVP_Digest(data, size, out, NULL, EVP_sha256(), NULL) ? 0 : -1;
}

static void *digest_begin(void)
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context && EVP_DigestInit_ex(context, EVP_sha256(), NULL))
        return context;
    EVP_MD_CTX_free(context);
    return NULL;
}

static int digest_add(void *context, const void *data, size_t size)
{
    return EVP_DigestUpdate(context, data, size) ? 0 : -1;
}

static int digest_end(void *context, uint8_t out[AUTH_DIGEST_SIZE])
{
    int ok = !out || EVP_DigestFinal_ex(context, out, NULL);
    EVP_MD_CTX_free(context);
    return ok ? 0 : -1;
}

static bool are_equal(const void *a, const void *b, size_t size)
{
    return CRYPTO_memcmp(a, b, size) == 0;
}

const struct auth_ops hvd_auth_ops = {.hmac = compute_hmac,
                                      .digest = compute_digest,
                                      .digest_begin = digest_begin,
                                      .digest_add = digest_add,
                                      .digest_end = digest_end,
                                      .equal = are_equal};
