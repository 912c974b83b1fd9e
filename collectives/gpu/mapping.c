/* Addresses first, then what lies there, then the right to use it; whatever fails, nothing of it stays. */
#include "collectives/gpu/mapping.h"

/* `mapped` is as far as it came. */
static int map(const struct driver *d, int gpu, const struct mapping_part *part, size_t parts, cu_pointer at,
               size_t *mapped, struct err *e)
{
    const struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};

    *mapped = 0;
    for (size_t i = 0; i < parts; i++) {
        if (driver_check(d, d->cuMemMap(at + *mapped, part[i].bytes, 0, part[i].allocation, 0), e,
                         "mapping memory of GPU %d", gpu) != 0)
            return -1;
        *mapped += part[i].bytes;
    }
    return driver_check(d, d->cuMemSetAccess(at, *mapped, &access, 1), e, "using memory of GPU %d", gpu);
}

int mapping_open(const struct driver *d, int gpu, const struct mapping_part *part, size_t parts,
                 cu_pointer *at, struct err *e)
{
    size_t bytes = 0, mapped;

    for (size_t i = 0; i < parts; i++)
        if (__builtin_add_overflow(bytes, part[i].bytes, &bytes))
            return err_set(e, ERR_PROTOCOL, "memory of GPU %d is larger than any can be", gpu);
    if (driver_check(d, d->cuMemAddressReserve(at, bytes, 0, 0, 0), e,
                     "finding addresses for memory of GPU %d", gpu) != 0)
        return -1;
    if (map(d, gpu, part, parts, *at, &mapped, e) == 0)
        return 0;
    if (mapped > 0)
        d->cuMemUnmap(*at, mapped);
    d->cuMemAddressFree(*at, bytes);
    *at = 0;
    return -1;
}

void mapping_close(const struct driver *d, cu_pointer at, size_t bytes)
{
    d->cuMemUnmap(at, bytes);
    d->cuMemAddressFree(at, bytes);
}
