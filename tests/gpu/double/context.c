/* Devices, and contexts: one primary context a device, and a stack of current ones for each thread, as the
 * driver has. The last release of a context is simplified: its streams, events and memory stay, but no call
 * that needs the context takes them any more. */
#include "tests/gpu/double/double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK_MAX = 16 };
static _Thread_local struct context *stack[STACK_MAX];
static _Thread_local int depth;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context primaries[GPUS_MAX];
static int visible[GPUS_MAX], n_visible;
static atomic_bool initialised, forked; /* forked: the parent had called cuInit */

static void uuid_of(int physical, unsigned char uuid[16])
{
    memcpy(uuid, "hvd-gpu-double-\0", 16);
    uuid[15] = (unsigned char)physical;
}

static int physical_of(const char *word, size_t length, int n)
{
    char text[48], *end;
    long number;

    for (int i = 0; i < n; i++) {
        unsigned char u[16];
        uuid_of(i, u);
        snprintf(text, sizeof text,
                 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
                 u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
        if (length > 4 && strncmp(text, word, length) == 0)
            return i;
    }
    snprintf(text, sizeof text, "%.*s", (int)length, word);
    number = strtol(text, &end, 10);
    return *text && !*end && number >= 0 && number < n ? (int)number : -1;
}

/* As the driver reads CUDA_VISIBLE_DEVICES: up to the first word that is no device. */
static void read_devices(void)
{
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    int n = (int)double_setting("HVD_DOUBLE_GPUS", 1);

    n = n < 0 ? 0 : n > GPUS_MAX ? GPUS_MAX : n;
    if (!list) {
        for (n_visible = 0; n_visible < n; n_visible++)
            visible[n_visible] = n_visible;
        return;
    }
    for (n_visible = 0; *list && n_visible < GPUS_MAX;) {
        size_t length = strcspn(list, ",");
        int physical = physical_of(list, length, n);

        if (physical < 0)
            break;
        visible[n_visible++] = physical;
        list += length + (list[length] == ',');
    }
}

CUresult double_enter(const char *function)
{
    int code = double_fault(function);

    if (code)
        return code < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)code;
    if (initialised && (code = (int)double_capture_minds(function)) != 0)
        return (CUresult)code;
    return initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult double_enter_context(const char *function, struct context **context)
{
    ENTER(function);
    *context = depth ? stack[depth - 1] : NULL;
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!(*context)->handle)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return (CUresult)(*context)->error;
}

void double_context_current(struct context **context)
{
    *context = depth ? stack[depth - 1] : NULL;
}

int double_device_count(void)
{
    return n_visible;
}

int double_device_physical(int device)
{
    return visible[device];
}

void double_device_uuid(int device, unsigned char uuid[16])
{
    uuid_of(visible[device], uuid);
}

bool double_are_peers(int device, int other)
{
    return device == other || double_setting("HVD_DOUBLE_PEERS", 1);
}

struct context *double_primary(int device)
{
    return &primaries[device];
}

static void be_forked(void)
{
    forked = true;
    initialised = false;
}

/* ---- the interface ---- */
CUresult cuInit(unsigned flags)
{
    int code = double_fault("cuInit");

    if (code)
        return code < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)code;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&lock);
    if (!initialised) {
        pthread_atfork(NULL, NULL, be_forked);
        double_take(REAL_INIT);
        read_devices();
        for (int i = 0; i < n_visible; i++) {
            primaries[i].device = i;
            pthread_mutex_init(&primaries[i].order, NULL);
        }
        initialised = n_visible > 0;
    }
    pthread_mutex_unlock(&lock);
    return n_visible ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    int code = double_fault("cuDriverGetVersion");

    if (code)
        return code < 0 ? CUDA_ERROR_UNKNOWN : (CUresult)code;
    *version = 13000;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER("cuDeviceGetCount");
    *count = n_visible;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
    ENTER("cuDeviceCanAccessPeer");
    if (device < 0 || device >= n_visible || peer < 0 || peer >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && double_are_peers(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device)
{
    ENTER("cuDeviceGetPCIBusId");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    if (length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(id, (size_t)length, "0000:%02x:00.0", visible[device] + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    ENTER("cuDeviceGetUuid");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    uuid_of(visible[device], (unsigned char *)uuid->bytes);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    return cuDeviceGetUuid(uuid, device);
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    static const int values[][2] = {
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
    };

    ENTER("cuDeviceGetAttribute");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    if (attribute == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) {
        *value = visible[device] + 1;
        return CUDA_SUCCESS;
    }
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i][0] == (int)attribute) {
            *value = values[i][1];
            return CUDA_SUCCESS;
        }
    double_misuse("cuDeviceGetAttribute: the double does not know attribute %d", (int)attribute);
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    struct context *c;

    ENTER("cuDevicePrimaryCtxRetain");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    c = &primaries[device];
    pthread_mutex_lock(&lock);
    if (c->retained++ == 0) {
        c->handle = double_handle_new(HANDLE_CONTEXT, c);
        c->error = 0;
    }
    *context = c->handle;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    ENTER("cuDevicePrimaryCtxGetState");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    pthread_mutex_lock(&lock);
    *flags = 0;
    *active = primaries[device].retained > 0;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    struct context *c;
    CUresult result = CUDA_SUCCESS;
    CUcontext last = NULL;

    ENTER("cuDevicePrimaryCtxRelease_v2");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    c = &primaries[device];
    pthread_mutex_lock(&lock);
    if (!c->retained)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--c->retained == 0)
        last = c->handle;
    pthread_mutex_unlock(&lock);
    if (last) {
        double_streams_drain(c);
        double_handle_drop(HANDLE_CONTEXT, last);
        c->handle = NULL;
    }
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

/* Another context of the device than the primary one. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    struct context *c;

    ENTER("cuCtxCreate_v2");
    if (device < 0 || device >= n_visible)
        return CUDA_ERROR_INVALID_DEVICE;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (depth == STACK_MAX || !(c = calloc(1, sizeof *c)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    c->device = device;
    pthread_mutex_init(&c->order, NULL);
    c->handle = double_handle_new(HANDLE_CONTEXT, c);
    stack[depth++] = c;
    *context = c->handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER("cuCtxGetCurrent");
    *context = depth && stack[depth - 1] ? stack[depth - 1]->handle : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    struct context *c = NULL;

    ENTER("cuCtxSetCurrent");
    if (context) {
        c = double_handle_get(HANDLE_CONTEXT, context);
        if (!c)
            return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (depth)
        depth--;
    if (c)
        stack[depth++] = c;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    struct context *c;

    ENTER_CONTEXT("cuCtxGetDevice", c);
    *device = c->device;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    struct context *c;

    ENTER("cuCtxPushCurrent_v2");
    c = double_handle_get(HANDLE_CONTEXT, context);
    if (!c || depth == STACK_MAX)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = c;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER("cuCtxPopCurrent_v2");
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context)
        *context = stack[depth]->handle;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return cuCtxPushCurrent_v2(context);
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    return cuCtxPopCurrent_v2(context);
}

/* ---- the words for errors ---- */
static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    {CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error_word(CUresult error, const char **to, bool name)
{
    *to = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            *to = name ? errors[i].name : errors[i].text;
    return *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    return error_word(error, name, true);
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    return error_word(error, text, false);
}
