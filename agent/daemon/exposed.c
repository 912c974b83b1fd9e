#include "agent/daemon/exposed.h"

#include "common/exposition.h"

static void gauge(FILE *out, const char *name, const char *help, double value)
{
    exposition_family(out, name, "gauge", help);
    exposition_sample(out, name, value, NULL);
}

void exposed_node(FILE *out, const struct exposed_node *n)
{
    gauge(out, "hvd_node_slots", "Slots of this node.", n->slots);
    gauge(out, "hvd_node_slots_leased", "Slots that jobs have.", n->taken);
    gauge(out, "hvd_node_drained", "1: no new jobs are taken.", n->drained);
}
