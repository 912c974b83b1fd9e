/* Addresses first, then what lies there, then the right to use it; whatever fails, nothing of it stays. */
#include "collectives/device/mapping.h"

int mapping_open(const struct driver *d, int gpu, cu_allocation allocation, size_t bytes, cu_pointer *at,
                 struct err *e)
{
    const struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};

    if (driver_check(d, d->cuMemAddressReserve(at, bytes, 0, 0, 0), e,
                     "finding addresses for memory of GPU %d", gpu) != 0)
        return -1;
    if (driver_check(d, d->cuMemMap(*at, bytes, 0, allocation, 0), e, "mapping memory of GPU %d", gpu) == 0) {
        if (driver_check(d, d->cuMemSetAccess(*at, bytes, &access, 1), e, "using memory of GPU %d", gpu) == 0)
            return 0;
        d->cuMemUnmap(*at, bytes);
    }
    d->cuMemAddressFree(*at, bytes);
    *at = 0;
    return -1;
}

void mapping_close(const struct driver *d, cu_pointer at, size_t bytes)
{
    d->cuMemUnmap(at, bytes);
    d->cuMemAddressFree(at, bytes);
}
