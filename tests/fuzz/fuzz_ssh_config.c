/* Any bytes as the output of `ssh -G` and ssh-agent: the parsers survive them. */
#include <stdlib.h>
#include <string.h>

#include "launcher/transport/ssh/ssh_agent.h"
#include "launcher/transport/ssh/ssh_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void each(void *ctx, const uint8_t *blob, size_t blob_len, const uint8_t *comment, size_t comment_len)
{
    size_t *sum = ctx; /* every byte is read, so that the sanitizer sees each slice */
    for (size_t i = 0; i < blob_len; i++)
        *sum += blob[i];
    for (size_t i = 0; i < comment_len; i++)
        *sum += comment[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ssh_user me = {.home = "/home/ann", .name = "ann"};
    struct ssh_config config;
    struct err e = ERR_INIT;
    const uint8_t *signature;
    size_t len, sum = 0;
    if (ssh_config_defaults(&config, &me, "node1", NULL, 0, &e) < 0)
        abort();
    ssh_config_parse(&config, &me, (const char *)data, size, &e);
    ssh_config_free(&config);
    ssh_agent_identities(data, size, each, &sum);
    if (ssh_agent_signature(data, size, &signature, &len))
        each(&sum, signature, len, NULL, 0);
    return sum == SIZE_MAX;
}
