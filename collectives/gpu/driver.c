/* Opening the driver: the loader finds the library, each function is looked up under its newest and then its
 * oldest name, cuInit is called, and from then on the table is only read. */
#include "collectives/gpu/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/gpu/library.h"

#define DRIVER_ROW(of, function, newest, oldest, parameters)                                                 \
    {DRIVER_##of, #function, newest, oldest, offsetof(struct driver, function)},
static const struct row {
    enum driver_feature feature;
    const char *name, *symbol, *older;
    size_t at; /* in struct driver */
} rows[] = {DRIVER_FUNCTIONS(DRIVER_ROW)};

#define ROWS (sizeof rows / sizeof rows[0])

static struct driver driver;

static int prepare_driver(void *handle, struct err *e)
{
    for (size_t i = 0; i < ROWS; i++) {
        void *function = dlsym(handle, rows[i].symbol);
        if (!function)
            function = dlsym(handle, rows[i].older);
        memcpy((char *)&driver + rows[i].at, &function, sizeof function);
    }
    if (driver.cuDriverGetVersion)
        driver.cuDriverGetVersion(&driver.version);
    if (driver_need(&driver, DRIVER_BASE, e) < 0)
        return -1;
    cu_result result = driver.cuInit(0);
    int status = driver_check(&driver, result, e, "the CUDA driver cannot be used");
    if (result == CU_DRIVER_MISMATCH)
        err_hint(
            e,
            "the kernel's module and libcuda are of different versions; a restart of the machine joins them");
    return status;
}

static struct library library = LIBRARY_INIT("CUDA driver", DRIVER_LIBRARY, prepare_driver);

bool driver_in_process(void)
{
    return library_in_process(&library);
}

const struct driver *driver_open(struct err *e)
{
    return library_open(&library, e) == 0 ? &driver : NULL;
}

const char *driver_lacks(const struct driver *d, enum driver_feature feature)
{
    for (size_t i = 0; i < ROWS; i++) {
        void *function;
        memcpy(&function, (const char *)d + rows[i].at, sizeof function);
        if (rows[i].feature == feature && !function)
            return rows[i].name;
    }
    return NULL;
}

int driver_need(const struct driver *d, enum driver_feature feature, struct err *e)
{
    const char *lacks = driver_lacks(d, feature);
    if (!lacks)
        return 0;
    return err_set(e, ERR_UNSUPPORTED, "the CUDA driver (%d.%d) is too old: it lacks %s", d->version / 1000,
                   d->version % 1000 / 10, lacks);
}

const char *driver_error_name(const struct driver *d, cu_result result)
{
    const char *name = NULL;
    if (d->cuGetErrorName && d->cuGetErrorName(result, &name) == CU_OK && name)
        return name;
    return "an unknown CUDA error";
}

static enum err_code code_of(cu_result result)
{
    switch (result) {
    case CU_OUT_OF_MEMORY:
        return ERR_MEMORY;
    case CU_NO_DEVICE:
    case CU_NOT_SUPPORTED:
        return ERR_UNSUPPORTED;
    default:
        return ERR_SYSTEM;
    }
}

int driver_check(const struct driver *d, cu_result result, struct err *e, const char *what, ...)
{
    if (result == CU_OK)
        return 0;
    char attempt[ERR_TEXT_MAX / 2];
    const char *text = NULL;
    va_list list;
    va_start(list, what);
    vsnprintf(attempt, sizeof attempt, what, list);
    va_end(list);
    if (!d->cuGetErrorString || d->cuGetErrorString(result, &text) != CU_OK || !text)
        return err_set(e, code_of(result), "%s: %s (%u)", attempt, driver_error_name(d, result), result);
    return err_set(e, code_of(result), "%s: %s (%s)", attempt, driver_error_name(d, result), text);
}

int driver_describe(const struct driver *d, cu_device device, struct driver_device *into, struct err *e)
{
    int major = 0, minor = 0;
    memset(into, 0, sizeof *into);
    into->device = device;
    cu_result result = d->cuDeviceGetPCIBusId(into->bus, (int)sizeof into->bus, device);
    struct cu_uuid uuid;
    if (result == CU_OK)
        result = d->cuDeviceGetUuid(&uuid, device);
    if (result == CU_OK)
        result = d->cuDeviceGetAttribute(&major, CU_DEVICE_CAPABILITY_MAJOR, device);
    if (result == CU_OK)
        result = d->cuDeviceGetAttribute(&minor, CU_DEVICE_CAPABILITY_MINOR, device);
    if (result == CU_OK)
        result = d->cuDeviceGetAttribute(&into->processors, CU_DEVICE_MULTIPROCESSORS, device);
    if (result != CU_OK)
        return driver_check(d, result, e, "asking what GPU %d is", device);
    memcpy(into->uuid, uuid.bytes, sizeof into->uuid);
    into->capability = major * 10 + minor;
    return 0;
}

int driver_stream(const struct driver *d, cu_stream *stream, struct err *e)
{
    *stream = NULL;
    int least, greatest;
    if (!driver_lacks(d, DRIVER_PRIORITY) && d->cuCtxGetStreamPriorityRange(&least, &greatest) == CU_OK)
        return driver_check(d, d->cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING_FLAG, greatest),
                            e, "making a stream");
    return driver_check(d, d->cuStreamCreate(stream, CU_STREAM_NON_BLOCKING_FLAG), e, "making a stream");
}

unsigned driver_capture_mode(const struct driver *d, unsigned mode)
{
    if (!d->cuThreadExchangeStreamCaptureMode || d->cuThreadExchangeStreamCaptureMode(&mode) != CU_OK)
        return CU_CAPTURE_MODE_GLOBAL;
    return mode;
}
