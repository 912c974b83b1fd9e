/* The test double of CUDA's driver behaves as the driver does: order only where it was asked for, memory that
 * the host cannot touch, handles between processes. Processes are forked before the first call. */
#include "tests/gpu/double/cuda_api.h"
#include "tests/unit/scratch.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OK(call) ck_assert_int_eq((call), CUDA_SUCCESS)

enum { WORDS = 1000 };

static CUcontext context;
static CUfunction fill, spin;

static void setup(void)
{
    CUmodule module;

    setenv("HVD_DOUBLE_LOG", "/dev/null", 0);
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, ".version 8.0 hvd_double_fill hvd_double_spin"));
    OK(cuModuleGetFunction(&fill, module, "hvd_double_fill"));
    OK(cuModuleGetFunction(&spin, module, "hvd_double_spin"));
}

static void launch_spin(uint64_t ms, CUstream stream)
{
    uint64_t ns = ms * 1000000;
    void *params[] = {&ns};

    OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static void launch_fill(CUdeviceptr at, uint32_t value, CUstream stream)
{
    uint64_t count = WORDS;
    void *params[] = {&at, &count, &value};

    OK(cuLaunchKernel(fill, 1, 1, 1, 128, 1, 1, 0, stream, params, NULL));
}

static uint32_t word_of(CUdeviceptr at, CUstream stream)
{
    uint32_t words[WORDS];

    OK(cuMemcpyDtoHAsync_v2(words, at, sizeof words, stream));
    for (int i = 1; i < WORDS; i++)
        ck_assert_uint_eq(words[i], words[0]);
    return words[0];
}

static CUdeviceptr memory(uint32_t value)
{
    CUdeviceptr at;

    OK(cuMemAlloc_v2(&at, WORDS * 4));
    launch_fill(at, value, NULL);
    OK(cuStreamSynchronize(NULL));
    return at;
}

/* Without the wait the copy comes too early: the order is real. */
START_TEST(a_stream_waits_only_when_told)
{
    CUdeviceptr a, b;
    CUstream one, two;
    CUevent event;

    setup();
    a = memory(1);
    b = memory(0);
    OK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    launch_spin(30, one);
    launch_fill(a, 2, one);
    OK(cuEventRecord(event, one));
    ck_assert_int_eq(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    ck_assert_int_eq(cuStreamQuery(one), CUDA_ERROR_NOT_READY);
    OK(cuMemcpyDtoDAsync_v2(b, a, WORDS * 4, two));
    ck_assert_uint_eq(word_of(b, two), 1);
    OK(cuStreamWaitEvent(two, event, 0));
    OK(cuMemcpyDtoDAsync_v2(b, a, WORDS * 4, two));
    ck_assert_uint_eq(word_of(b, two), 2);
    OK(cuEventQuery(event));
}
END_TEST

START_TEST(the_default_stream_joins_blocking_streams)
{
    CUdeviceptr a, b;
    CUstream blocking, apart;

    setup();
    a = memory(1);
    b = memory(0);
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
    launch_spin(20, blocking);
    launch_fill(a, 3, blocking);
    ck_assert_uint_eq(word_of(a, NULL), 3);
    launch_spin(20, NULL);
    launch_fill(a, 4, NULL);
    OK(cuMemcpyDtoDAsync_v2(b, a, WORDS * 4, apart));
    ck_assert_uint_eq(word_of(b, apart), 3);
    ck_assert_uint_eq(word_of(a, blocking), 4);
}
END_TEST

START_TEST(the_host_cannot_touch_device_memory)
{
    setup();
    signal(SIGSEGV, SIG_DFL); /* whatever a sanitizer has there */
    *(volatile char *)(uintptr_t)memory(1) = 1;
}
END_TEST

START_TEST(what_was_destroyed_is_refused)
{
    CUstream stream;
    CUevent event;
    CUdeviceptr at;

    setup();
    at = memory(1);
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    OK(cuEventDestroy_v2(event));
    ck_assert_int_eq(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuStreamDestroy_v2(stream));
    ck_assert_int_eq(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(cuMemFree_v2(at));
    ck_assert_int_eq(cuMemFree_v2(at), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemsetD8Async(at, 0, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxSetCurrent(NULL));
    ck_assert_int_eq(cuMemAlloc_v2(&at, 4), CUDA_ERROR_INVALID_CONTEXT);
}
END_TEST

/* A kernel that reaches freed memory breaks its context for good. */
START_TEST(an_illegal_address_breaks_the_context)
{
    CUdeviceptr at;

    setup();
    at = memory(1);
    OK(cuMemFree_v2(at));
    launch_fill(at, 1, NULL);
    ck_assert_int_eq(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(cuMemAlloc_v2(&at, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(cuPointerGetAttribute(&at, CU_POINTER_ATTRIBUTE_BUFFER_ID, (uintptr_t)&at),
                     CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

START_TEST(what_is_written_behind_an_allocation_is_told)
{
    char log[SCRATCH_MAX], line[200] = "";
    int fd = scratch_file(log, "gpu-double");
    CUdeviceptr at;

    ck_assert_int_ge(fd, 0);
    setenv("HVD_DOUBLE_LOG", log, 1);
    setup();
    OK(cuMemAlloc_v2(&at, WORDS * 4));
    launch_fill(at, 1, NULL);
    OK(cuMemFree_v2(at));
    ck_assert_int_eq(read(fd, line, sizeof line - 1), 0);
    OK(cuMemAlloc_v2(&at, WORDS * 4 - 1));
    launch_fill(at, 1, NULL);
    OK(cuMemFree_v2(at));
    ck_assert_int_gt(read(fd, line, sizeof line - 1), 0);
    ck_assert_msg(strstr(line, "an allocation of 3999 bytes was written to behind its end, at 3999"), "%s",
                  line);
    close(fd);
    unlink(log);
}
END_TEST

START_TEST(a_pointer_says_what_it_is)
{
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    unsigned type = 9;
    int device = 9;
    CUdeviceptr at, start;
    void *answers[] = {&type, &device, &start}, *pinned;

    setup();
    at = memory(1);
    OK(cuPointerGetAttributes(3, asked, answers, at + 100));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(device, 0);
    ck_assert(start == at);
    OK(cuPointerGetAttributes(3, asked, answers, (uintptr_t)&type));
    ck_assert_uint_eq(type, 0);
    ck_assert_int_eq(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)&type),
                     CUDA_ERROR_INVALID_VALUE);
    asked[2] = CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID; /* not in the list of the call for several */
    ck_assert_int_eq(cuPointerGetAttributes(3, asked, answers, at), CUDA_ERROR_INVALID_VALUE);
    OK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at));
    ck_assert(start != 0);
    OK(cuMemHostAlloc(&pinned, 4096, 0));
    OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)pinned));
    ck_assert_uint_eq(type, CU_MEMORYTYPE_HOST);
}
END_TEST

/* ---- between processes ---- */
struct offer {
    CUipcMemHandle memory;
    CUipcEventHandle event;
};

static void child_reads(int from, int to)
{
    struct offer offer;
    CUdeviceptr theirs, again, mine;
    CUevent event;
    CUstream stream;
    uint32_t value;

    if (read(from, &offer, sizeof offer) != sizeof offer)
        _exit(2);
    setup();
    OK(cuIpcOpenMemHandle_v2(&theirs, offer.memory, 1));
    OK(cuIpcOpenMemHandle_v2(&again, offer.memory, 1));
    ck_assert(theirs == again);
    OK(cuIpcOpenEventHandle(&event, offer.event));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    mine = memory(0);
    OK(cuStreamWaitEvent(stream, event, 0));
    OK(cuMemcpyDtoDAsync_v2(mine, theirs, WORDS * 4, stream));
    value = word_of(mine, stream);
    OK(cuIpcCloseMemHandle(theirs));
    OK(cuMemcpyDtoDAsync_v2(mine, again, WORDS * 4, stream));
    OK(cuIpcCloseMemHandle(again));
    ck_assert_int_eq(cuMemcpyDtoDAsync_v2(mine, again, 4, stream), CUDA_ERROR_INVALID_VALUE);
    _exit(write(to, &value, sizeof value) == sizeof value ? 0 : 2);
}

START_TEST(memory_and_events_cross_processes)
{
    int down[2], up[2], status;
    struct offer offer;
    CUdeviceptr at;
    CUevent event;
    CUstream stream;
    uint32_t value = 0;
    pid_t child;

    ck_assert(pipe(down) == 0 && pipe(up) == 0);
    child = fork();
    if (child == 0)
        child_reads(down[0], up[1]);
    setup();
    at = memory(1);
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    launch_spin(100, stream);
    launch_fill(at, 7, stream);
    OK(cuEventRecord(event, stream));
    OK(cuIpcGetMemHandle(&offer.memory, at));
    OK(cuIpcGetEventHandle(&offer.event, event));
    ck_assert_int_eq(cuIpcOpenMemHandle_v2(&at, offer.memory, 1), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_int_eq(write(down[1], &offer, sizeof offer), sizeof offer);
    ck_assert_int_eq(read(up[0], &value, sizeof value), sizeof value);
    ck_assert_uint_eq(value, 7);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(mapped_memory_needs_access_and_travels_as_a_descriptor)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle, same, other;
    CUdeviceptr at, second;
    size_t size = 2 << 20, bytes;
    uint64_t types = 0;
    int fd;

    setup();
    OK(cuMemCreate(&handle, size, &prop, 0));
    OK(cuMemAddressReserve(&at, 2 * size, 0, 0, 0));
    OK(cuMemMap(at, size, 0, handle, 0));
    ck_assert_int_eq(cuMemsetD8Async(at, 5, size, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(at, size, &access, 1));
    OK(cuMemsetD8Async(at, 5, size, NULL));
    OK(cuMemRetainAllocationHandle(&same, (void *)(uintptr_t)(at + 5)));
    ck_assert(same == handle);
    OK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, at));
    ck_assert(types == 1);
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cuMemImportFromShareableHandle(&other, (void *)(uintptr_t)fd,
                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    OK(cuMemMap(at + size, size, 0, other, 0));
    OK(cuMemSetAccess(at + size, size, &access, 1));
    ck_assert_uint_eq(word_of(at + size, NULL), 0x05050505);
    OK(cuMemGetAddressRange_v2(&second, &bytes, at + size + 9));
    ck_assert(second == at + size && bytes == size);
    OK(cuMemUnmap(at, 2 * size));
    OK(cuMemRelease(handle));
    OK(cuMemRelease(same));
    ck_assert_int_eq(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(at, 2 * size));
}
END_TEST

/* Mappings are used as one where no address between them is without memory, or access. */
START_TEST(mappings_one_behind_the_other)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle[2];
    CUdeviceptr at, again;
    size_t size = 2 << 20;

    setup();
    OK(cuMemAddressReserve(&at, 3 * size, 0, 0, 0));
    OK(cuMemAddressReserve(&again, 2 * size, 0, 0, 0));
    for (int i = 0; i < 2; i++)
        OK(cuMemCreate(&handle[i], size, &prop, 0));
    OK(cuMemMap(at, size, 0, handle[0], 0));
    ck_assert_int_eq(cuMemMap(at, size, 0, handle[1], 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemMap(at + 3 * size, size, 0, handle[1], 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemMap(at + size, size / 2, 0, handle[1], 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemMap(at + size, size, 0, handle[1], 0));
    OK(cuMemMap(again, size, 0, handle[1], 0)); /* both at a second place, the other way round */
    OK(cuMemMap(again + size, size, 0, handle[0], 0));
    for (int i = 0; i < 2; i++)
        OK(cuMemRelease(handle[i]));
    OK(cuMemSetAccess(at, size, &access, 1));
    ck_assert_int_eq(cuMemsetD8Async(at, 1, size + 1, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemSetAccess(at, 2 * size, &access, 1));
    OK(cuMemSetAccess(again, 2 * size, &access, 1));
    OK(cuMemsetD8Async(at, 1, 2 * size, NULL));
    OK(cuMemsetD8Async(at + size - WORDS * 2, 2, WORDS * 4, NULL));
    ck_assert_uint_eq(word_of(at + size - WORDS * 2, NULL), 0x02020202);
    ck_assert_uint_eq(word_of(at + size + WORDS * 2, NULL), 0x01010101);
    OK(cuMemsetD8Async(again + size - WORDS * 4, 3, WORDS * 8, NULL));
    ck_assert_uint_eq(word_of(at, NULL), 0x03030303);
    ck_assert_uint_eq(word_of(at + 2 * size - WORDS * 4, NULL), 0x03030303);
    ck_assert_int_eq(cuMemsetD8Async(at, 1, 2 * size + 1, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_int_eq(cuMemAddressFree(again, 2 * size), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(again, 2 * size));
    ck_assert_int_eq(cuMemAddressFree(again, size), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemAddressFree(again, 2 * size));
    OK(cuMemUnmap(at, size));
    ck_assert_int_eq(cuMemsetD8Async(at + size - 4, 1, 8, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(cuMemUnmap(at + size, size));
    OK(cuMemAddressFree(at, 3 * size));
}
END_TEST

START_TEST(devices_are_counted_and_hidden)
{
    int n = 0;
    char id[32];
    CUuuid one, two;
    CUdevice device;

    setenv("HVD_DOUBLE_GPUS", "4", 1);
    setenv("CUDA_VISIBLE_DEVICES", "2,GPU-6876642d-6770-752d-646f-75626c652d00,9,1", 1);
    OK(cuInit(0));
    OK(cuDeviceGetCount(&n));
    ck_assert_int_eq(n, 2);
    OK(cuDeviceGet(&device, 0));
    OK(cuDeviceGetPCIBusId(id, sizeof id, device));
    ck_assert_str_eq(id, "0000:03:00.0");
    OK(cuDeviceGetUuid(&one, 0));
    OK(cuDeviceGetUuid_v2(&two, 1));
    ck_assert_int_ne(memcmp(&one, &two, sizeof one), 0);
    ck_assert_int_eq(cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
}
END_TEST

/* ---- faults and the trace ---- */
static int lines_with(const char *file, const char *word)
{
    char line[256];
    int n = 0;
    FILE *f = fopen(file, "r");

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f))
        n += strstr(line, word) != NULL;
    fclose(f);
    return n;
}

START_TEST(faults_come_when_asked_for)
{
    CUdeviceptr at;
    char trace[SCRATCH_MAX];

    close(scratch_file(trace, "gpu-double"));
    setenv("HVD_RANK", "1", 1);
    setenv("HVD_DOUBLE_TRACE", trace, 1);
    setenv("HVD_DOUBLE_FAIL", "cuMemAlloc:2:2,cuMemAlloc@0:3,cuStreamQuery@1:1", 1);
    setup();
    OK(cuMemAlloc_v2(&at, 10));
    ck_assert_int_eq(cuMemAlloc_v2(&at, 10), CUDA_ERROR_OUT_OF_MEMORY);
    OK(cuMemAlloc_v2(&at, 10));
    ck_assert_int_eq(cuStreamQuery(NULL), CUDA_ERROR_UNKNOWN);
    OK(cuStreamSynchronize(NULL));
    ck_assert_int_eq(lines_with(trace, " cuMemAlloc_v2"), 4);
    ck_assert_int_eq(lines_with(trace, " failed cuMemAlloc_v2 2"), 1);
    ck_assert_int_eq(lines_with(trace, " host-sync"), 1);
    unsetenv("HVD_DOUBLE_TRACE"); /* the end of the process is traced too */
    unlink(trace);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu double");
    TCase *tests = tcase_create("driver");
    SRunner *runner;
    int failed;

    tcase_add_test(tests, a_stream_waits_only_when_told);
    tcase_add_test(tests, the_default_stream_joins_blocking_streams);
    tcase_add_test_raise_signal(tests, the_host_cannot_touch_device_memory, SIGSEGV);
    tcase_add_test(tests, what_was_destroyed_is_refused);
    tcase_add_test(tests, an_illegal_address_breaks_the_context);
    tcase_add_test(tests, what_is_written_behind_an_allocation_is_told);
    tcase_add_test(tests, a_pointer_says_what_it_is);
    tcase_add_test(tests, memory_and_events_cross_processes);
    tcase_add_test(tests, mapped_memory_needs_access_and_travels_as_a_descriptor);
    tcase_add_test(tests, mappings_one_behind_the_other);
    tcase_add_test(tests, devices_are_counted_and_hidden);
    tcase_add_test(tests, faults_come_when_asked_for);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
