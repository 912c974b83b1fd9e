/* Opens CUDA and NCCL as libhvd does, and prints one line about them. Exit status 0: a GPU and NCCL; 1: no
 * GPU; 3: a GPU without NCCL, so jobs go through the host's memory. */
#include <stdio.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/nccl.h"
#include "common/base/err.h"

int main(void)
{
    struct err e = {0};
    struct driver_device device;
    const struct driver *d = driver_open(&e);
    const struct nccl *n;
    int count = 0;

    if (!d || driver_check(d, d->cuDeviceGetCount(&count), &e, "counting GPUs") < 0) {
        printf("no GPU: %s\n", e.text);
        return 1;
    }
    if (count == 0 || driver_describe(d, 0, &device, &e) < 0) {
        printf("no GPU: %s\n", count ? e.text : "the driver has none");
        return 1;
    }
    n = nccl_open(&e);
    printf("%d GPUs, the first at %s (capability %d.%d), CUDA %d.%d, %s%s\n", count, device.bus,
           device.capability / 10, device.capability % 10, d->version / 1000, d->version % 1000 / 10,
           n ? "NCCL " : "no NCCL: ", n ? nccl_version_text(n->version).text : e.text);
    return n ? 0 : 3;
}
