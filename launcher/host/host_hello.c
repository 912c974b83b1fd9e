/* Hello, the first message to a session. */
#include "common/base/log.h"
#include "common/protocol/message.h"
#include "launcher/cli/list_options.h"
#include "launcher/host/host.h"

static bool offers_contract(const struct config *config, unsigned wanted)
{
    unsigned contracts;
    return contracts_parse(config->rendezvous, &contracts, NULL) == 0 && (contracts & wanted);
}

/* Rank 0 may be there: it is on the first host, unless a rankfile or a program's -H says otherwise. */
static bool may_be_first(const struct host *h)
{
    return h->index == 0 || h->common->config->placement.rankfile || h->common->config->programs.part;
}

/* How many ranks may come here, before those of other hosts are known; 0: cannot be said. */
static uint32_t ranks_at_most(const struct host *h)
{
    const struct plan_want want = placement_want(h->common->config);
    bool said = want.per_part ? h->spec->parts : h->spec->slots || want.ppr || want.oversubscribe;
    uint32_t here = said ? plan_room(h->spec, &want) : 0;
    return want.np && (!here || want.np < here) ? want.np : here;
}

void host_hello(const struct host *h, Hvd__Hello *hello)
{
    const struct host_common *c = h->common;
    hello->version = (char *)HVD_VERSION;
    hello->protocol = PROTOCOL_VERSION;
    hello->oldest_protocol = PROTOCOL_OLDEST;
    hello->job = (char *)c->job;
    hello->host = h->spec->name;
    hello->key.data = (uint8_t *)c->key;
    hello->key.len = JOB_KEY_SIZE;
    hello->count_slots = h->spec->slots == 0;
    if (c->config->placement.per_part) {
        hello->count_parts = c->config->placement.map_by;
        hello->per_part = c->config->placement.ppr;
    }
    hello->heartbeat_ms = (uint32_t)c->config->heartbeat_timeout_ms;
    hello->grace_ms = (uint32_t)c->config->grace_ms;
    hello->log_level = (uint32_t)log_level();
    hello->interface = c->interfaces;
    hello->n_interface = c->interface_count;
    hello->hosts = c->host_count;
    hello->ranks = h->ranks ? h->ranks : ranks_at_most(h);
    hello->preflight = c->preflight;
    hello->encrypt = c->config->encrypt;
    hello->wait = c->config->wait_ms != JOB_WAIT_NO;
    hello->hold = c->hold;
    hello->priority = (uint32_t)c->config->priority;
    hello->worker_ports = offers_contract(c->config, CONTRACTS_ENDPOINTS);
    const char *reached_at = h->ops == &transport_local ? NULL : h->ops->peer_address(h->transport);
    hello->reached_at = (char *)(reached_at ? reached_at : "");
    hello->port_low = c->config->ports.low;
    hello->port_high = c->config->ports.high;
    hello->master_port = may_be_first(h) && offers_contract(c->config, CONTRACT_ENV);
    hello->master_coordinator = may_be_first(h) && offers_contract(c->config, CONTRACT_JAX);
}
