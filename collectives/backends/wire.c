#include "collectives/backends/wire.h"

#include "common/net/links.h"

const struct wire_ops links_wire = {.send_control = links_send_control, .send_bulk = links_send_bulk};
