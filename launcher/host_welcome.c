/* Whether what a host says of itself in Welcome can be true. It is refused whole: what is wrong in one place
 * is not believed in another. */
#include <arpa/inet.h>
#include <string.h>

#include "launcher/host.h"

#define SLOTS_MAX    65536 /* ranks that a session takes */
#define PROBLEMS_MAX 64    /* it names fewer of them, and of limits */

/* Numeric; an IPv6 address may have a scope. */
static bool is_address(const char *text)
{
    char plain[INET6_ADDRSTRLEN];
    struct in_addr four;
    struct in6_addr six;
    size_t len = strcspn(text, "%");
    if (len >= sizeof plain || strlen(text) > INET6_ADDRSTRLEN + 16)
        return false;
    memcpy(plain, text, len);
    plain[len] = '\0';
    return inet_pton(AF_INET, text, &four) == 1 || inet_pton(AF_INET6, plain, &six) == 1;
}

static bool are_ports(const uint32_t *port, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (port[i] > UINT16_MAX)
            return false;
    return count <= SLOTS_MAX;
}

int host_check_welcome(const Hvd__Welcome *w, struct err *e)
{
    const char *wrong = NULL;
    if (w->slots > SLOTS_MAX || w->parts > SLOTS_MAX)
        wrong = "its slots are too many";
    else if (w->free_port > UINT16_MAX || w->coordinator_port > UINT16_MAX ||
             !are_ports(w->worker_port, w->n_worker_port))
        wrong = "its ports are none";
    else if (w->n_problem > PROBLEMS_MAX || w->n_limit > PROBLEMS_MAX)
        wrong = "it names too many problems";
    for (size_t i = 0; i < w->n_address && !wrong; i++)
        if (!is_address(w->address[i]))
            wrong = "its addresses are none";
    return wrong ? err_set(e, ERR_PROTOCOL, "hvdagent there says what cannot be: %s", wrong) : 0;
}
