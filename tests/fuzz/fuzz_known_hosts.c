/* Any bytes as a known_hosts file or a key file: the parsers survive them, and every verdict is one of the
 * five. */
#include <stdlib.h>
#include <string.h>

#include "launcher/transport/ssh/ssh_key_file.h"
#include "launcher/transport/ssh/ssh_known_hosts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"node1.example.com", "[node1]:2222", "::1"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct known_hosts known = {0};
        struct err e = ERR_INIT;
        const struct known_host *which = NULL;
        if (known_hosts_parse(&known, "file", (const char *)data, size, names[i], &e) < 0)
            abort();
        for (size_t k = 0; k < known.count; k++) {
            enum known_verdict v =
                known_hosts_check(&known, known.entry[k].blob, known.entry[k].blob_len, &which);
            /* A line's own key is never unknown, and never changed, unless only an authority has it or a
             * revocation does not concern it. */
            if (known.entry[k].marker == KNOWN_PLAIN &&
                (v == KNOWN_UNKNOWN || v == KNOWN_CHANGED || v == KNOWN_AUTHORITY))
                abort();
        }
        known_hosts_free(&known);
    }
    struct ssh_key_info info;
    ssh_key_classify((const char *)data, size, &info);
    free(info.blob);
    return 0;
}
