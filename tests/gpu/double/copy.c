/* Copies in a stream, and what a pointer is.
 *
 * Memory of the host that is not registered is treated as the driver treats it: what is copied from it is
 * read before the call returns, and a copy to it returns only when it is done, which is written down as a
 * wait of the host. */
#include "tests/gpu/double/double.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct copy {
    uint64_t to, from;
    size_t bytes;
    void *staged; /* instead of from */
    int value;    /* for memset, else -1 */
    const char *what;
    bool plain; /* `to` is memory of the host that nobody registered */
};

static bool registered(const void *pointer, size_t bytes)
{
    return double_reach((uintptr_t)pointer, bytes) != NULL;
}

static void run_copy(struct context *context, void *argument)
{
    struct copy *c = argument;
    char *from = c->staged, *to = NULL;

    if (!context->error)
        to = c->plain ? (char *)(uintptr_t)c->to : double_reach_or_break(context, c->to, c->bytes, c->what);

    if (to && !from && c->value < 0)
        from = double_reach_or_break(context, c->from, c->bytes, c->what);
    if (to && c->value >= 0)
        memset(to, c->value, c->bytes);
    else if (to && from)
        memmove(to, from, c->bytes);
    free(c->staged);
    free(c);
}

static CUresult enqueue(CUstream handle, struct copy copy, const void *stage)
{
    struct context *current;
    struct stream *s;
    struct copy *c;

    double_context_current(&current);
    s = double_stream_get(handle, current);
    if (!s)
        return current ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
    if (double_stream_context(s)->error)
        return (CUresult)double_stream_context(s)->error;
    if (!copy.bytes)
        return CUDA_SUCCESS;
    c = malloc(sizeof *c);
    if (!c)
        abort();
    *c = copy;
    if (stage) {
        c->staged = malloc(copy.bytes);
        if (!c->staged)
            abort();
        memcpy(c->staged, stage, copy.bytes);
    }
    double_stream_push(s, run_copy, c);
    if (copy.plain) {
        double_host_sync(copy.what);
        return cuStreamSynchronize(handle);
    }
    return CUDA_SUCCESS;
}

static bool on_device(uint64_t address, size_t bytes, const char *what)
{
    struct range r;

    if (!bytes || double_range_usable(address, bytes, &r))
        return true;
    double_misuse("%s: %zu bytes at %#llx are not in an allocation", what, bytes,
                  (unsigned long long)address);
    return false;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    struct copy c = {to, (uintptr_t)from, bytes, NULL, -1, "cuMemcpyHtoDAsync", false};

    ENTER("cuMemcpyHtoDAsync_v2");
    if (!on_device(to, bytes, c.what))
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, c, registered(from, bytes) ? NULL : from);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct copy c = {(uintptr_t)to, from, bytes, NULL, -1, "cuMemcpyDtoHAsync", false};

    ENTER("cuMemcpyDtoHAsync_v2");
    if (!on_device(from, bytes, c.what))
        return CUDA_ERROR_INVALID_VALUE;
    c.plain = !registered(to, bytes);
    return enqueue(stream, c, NULL);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    struct copy c = {to, from, bytes, NULL, -1, "cuMemcpyDtoDAsync", false};

    ENTER("cuMemcpyDtoDAsync_v2");
    if (!on_device(to, bytes, c.what) || !on_device(from, bytes, c.what))
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, c, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream)
{
    struct copy c = {to, 0, bytes, NULL, value, "cuMemsetD8Async", false};

    ENTER("cuMemsetD8Async");
    if (!on_device(to, bytes, c.what))
        return CUDA_ERROR_INVALID_VALUE;
    return enqueue(stream, c, NULL);
}

/* ---- attributes of pointers ---- */
static unsigned handle_types(const struct range *r)
{
    CUmemGenericAllocationHandle handle;
    int fd;

    if (r->kind != RANGE_MAPPED || cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)r->base))
        return 0;
    if (cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
        CUDA_SUCCESS)
        close(fd);
    else
        fd = -1;
    cuMemRelease(handle);
    return fd >= 0;
}

/* `r` is NULL for memory that the driver does not know. */
static CUresult attribute_of(const struct range *r, CUdeviceptr pointer, CUpointer_attribute attribute,
                             void *data)
{
    bool host = r && (r->kind == RANGE_PINNED || r->kind == RANGE_REGISTERED);

    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = r && r->kind != RANGE_MAPPED ? double_range_context(r)->handle : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = !r ? 0 : host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = r ? pointer : 0;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        *(void **)data = host ? (void *)(uintptr_t)pointer : NULL;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: /* CUDA's text leaves open whether it minds what is mapped there */
        *(unsigned long long *)data = !r ? 0 : r->kind == RANGE_MAPPED ? r->base : r->id;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        if (!double_setting("HVD_DOUBLE_BLOCKS", 1))
            return CUDA_ERROR_INVALID_VALUE;
        *(unsigned long long *)data = r ? r->id : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = r ? r->device : -2;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(bool *)data = r && r->kind == RANGE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = r ? r->base : 0;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = r ? r->size : 0;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(bool *)data = r != NULL;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = r ? handle_types(r) : 0;
        break;
    default:
        double_misuse("cuPointerGetAttribute: the double does not know attribute %d", (int)attribute);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* It needs no context, but tells the error of one. */
static CUresult enter_pointer(const char *function)
{
    struct context *c;

    ENTER(function);
    double_context_current(&c);
    return c ? (CUresult)c->error : CUDA_SUCCESS;
}

/* Those that the manual lists for the call that asks for several. */
static bool is_listed(CUpointer_attribute attribute)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return true;
    default:
        return false;
    }
}

CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer)
{
    struct range r;
    bool known;
    CUresult early = enter_pointer("cuPointerGetAttributes");

    if (early)
        return early;
    known = double_range_find(pointer, 1, &r);
    for (unsigned i = 0; i < n; i++) {
        CUresult result = is_listed(attributes[i])
                              ? attribute_of(known ? &r : NULL, pointer, attributes[i], data[i])
                              : CUDA_ERROR_INVALID_VALUE;
        if (result)
            return result;
    }
    return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer)
{
    struct range r;
    CUresult early = enter_pointer("cuPointerGetAttribute");

    if (early)
        return early;
    if (!double_range_find(pointer, 1, &r))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_of(&r, pointer, attribute, data);
}
