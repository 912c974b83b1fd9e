#include "common/net/auth.h"

#include <errno.h>
#include <sys/random.h>

#include "common/process/module.h"

int auth_random(void *out, size_t size, struct err *e)
{
    uint8_t *p = out;
    while (size > 0) {
        ssize_t n = getrandom(p, size, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(e, errno, "cannot get random bytes");
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

const struct auth_ops *auth_open(struct err *e)
{
    static const struct auth_ops *ops;
    if (!ops)
        ops = module_symbol("auth", "hvd_auth_ops", e);
    return ops;
}
