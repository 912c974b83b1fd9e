/* Addresses first, then what lies there, then the right to use it; whatever fails, nothing of it stays. */
#include "collectives/gpu/mapping.h"

#define GPUS_MAX 64

/* The GPU's own right first, then those of all others of this process that can use its memory: kernels of
 * NCCL there may. How many. */
static size_t list_rights(const struct driver *d, int gpu, struct cu_access access[GPUS_MAX])
{
    const struct cu_access own = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};
    int gpus = 0, can = 0;
    size_t n = 0;
    access[n++] = own;
    if (d->cuDeviceGetCount(&gpus) != CU_OK)
        return n;
    for (int i = 0; i < gpus && n < GPUS_MAX; i++)
        if (i != gpu && d->cuDeviceCanAccessPeer(&can, i, gpu) == CU_OK && can) {
            access[n] = own;
            access[n++].location.id = i;
        }
    return n;
}

/* If the driver does not give the other GPUs their rights, NCCL finds another way: it maps the memory it
 * uses there. */
static cu_result give_rights(const struct driver *d, int gpu, cu_pointer at, size_t bytes)
{
    struct cu_access access[GPUS_MAX];
    size_t n = list_rights(d, gpu, access);
    if (n > 1 && d->cuMemSetAccess(at, bytes, access, n) == CU_OK)
        return CU_OK;
    return d->cuMemSetAccess(at, bytes, access, 1);
}

/* `mapped` is as far as it came. */
static int map_part(const struct driver *d, int gpu, const struct mapping_part *part, size_t parts,
                    cu_pointer at, size_t *mapped, struct err *e)
{
    *mapped = 0;
    for (size_t i = 0; i < parts; i++) {
        if (driver_check(d, d->cuMemMap(at + *mapped, part[i].bytes, 0, part[i].allocation, 0), e,
                         "mapping memory of GPU %d", gpu) != 0)
            return -1;
        *mapped += part[i].bytes;
    }
    return driver_check(d, give_rights(d, gpu, at, *mapped), e, "using memory of GPU %d", gpu);
}

int mapping_open(const struct driver *d, int gpu, const struct mapping_part *part, size_t parts,
                 cu_pointer *at, struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < parts; i++)
        if (__builtin_add_overflow(bytes, part[i].bytes, &bytes))
            return err_set(e, ERR_PROTOCOL, "memory of GPU %d is larger than any can be", gpu);
    if (driver_check(d, d->cuMemAddressReserve(at, bytes, 0, 0, 0), e,
                     "finding addresses for memory of GPU %d", gpu) != 0)
        return -1;
    size_t mapped;
    if (map_part(d, gpu, part, parts, *at, &mapped, e) == 0)
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
