#include "common/net/tls.h"

#include "common/process/module.h"

const struct tls_ops *tls_open(struct err *e)
{
    static const struct tls_ops *ops;
    if (!ops)
        ops = module_symbol("tls", "hvd_tls_ops", e);
    return ops;
}
