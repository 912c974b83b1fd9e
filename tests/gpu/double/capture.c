/* Streams that are captured into graphs. The double keeps no graph: it looks for calls that spoil a capture.
 * A call that may wait for a device or take memory spoils captures, as CUDA documents:
 *
 *   global mode      such a call of any thread spoils the capture
 *   thread mode      only a call of the capturing thread does
 *
 * A thread that has made its own mode relaxed spoils nothing. A wait for an event from before the capture
 * spoils the capture too. */
#include "tests/gpu/double/double.h"

#include <string.h>

enum { CAPTURES = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct capture {
    CUstream stream; /* NULL: none */
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool spoilt;
} captures[CAPTURES];
static _Atomic int under_way;
static _Thread_local CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static bool minds(const struct capture *c)
{
    if (!c->stream || c->mode == CU_STREAM_CAPTURE_MODE_RELAXED || own_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    return pthread_equal(c->thread, pthread_self()) ||
           (c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && own_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult double_capture_minds(const char *function)
{
    static const char *const unsafe[] = {"cuMemAlloc_v2",       "cuMemFree_v2",         "cuMemHostAlloc",
                                         "cuMemFreeHost",       "cuMemHostRegister_v2", "cuMemHostUnregister",
                                         "cuEventQuery",        "cuEventSynchronize",   "cuStreamQuery",
                                         "cuStreamSynchronize", "cuModuleLoadData",     "cuModuleUnload"};
    CUresult result = CUDA_SUCCESS;
    size_t i = 0;

    if (!under_way)
        return CUDA_SUCCESS;
    while (i < sizeof unsafe / sizeof *unsafe && strcmp(unsafe[i], function) != 0)
        i++;
    if (i == sizeof unsafe / sizeof *unsafe)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    for (struct capture *c = captures; c < captures + CAPTURES; c++)
        if (minds(c)) {
            c->spoilt = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    pthread_mutex_unlock(&lock);
    return result;
}

bool double_capture_minds_threads(void)
{
    bool any = false;

    pthread_mutex_lock(&lock);
    for (struct capture *c = captures; c < captures + CAPTURES; c++)
        if (c->stream && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)
            any = c->spoilt = true;
    pthread_mutex_unlock(&lock);
    return any;
}

static struct capture *find(CUstream stream)
{
    for (struct capture *c = captures; c < captures + CAPTURES; c++)
        if (c->stream == stream)
            return c;
    return NULL;
}

bool double_capture_spoil(CUstream stream)
{
    struct capture *c = NULL;

    if (!under_way || !stream)
        return false;
    pthread_mutex_lock(&lock);
    if ((c = find(stream)) != NULL)
        c->spoilt = true;
    pthread_mutex_unlock(&lock);
    return c != NULL;
}

/* ---- the interface ---- */
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    ENTER("cuStreamIsCapturing");
    pthread_mutex_lock(&lock);
    *status = stream && find(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    struct capture *c;

    ENTER("cuStreamBeginCapture_v2");
    if (!stream || !double_handle_get(HANDLE_STREAM, stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    if (!find(stream) && (c = find(NULL)) != NULL)
        *c = (struct capture){stream, mode, pthread_self(), false};
    under_way++;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    struct capture *c;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    ENTER("cuStreamEndCapture");
    *graph = NULL;
    pthread_mutex_lock(&lock);
    if (stream && (c = find(stream)) != NULL) {
        result = c->spoilt ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
        c->stream = NULL;
        under_way--;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUstreamCaptureMode before = own_mode; /* no line of the trace: who polls calls it often */

    own_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
