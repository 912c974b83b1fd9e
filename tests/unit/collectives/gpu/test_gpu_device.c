/* The driver, pointers and packing on the doubles: what is there, what is not, what is said then. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/kernels/dtype.h"
#include "collectives/gpu/driver.h"
#include "collectives/gpu/library.h"
#include "collectives/gpu/nccl.h"
#include "collectives/gpu/pack.h"
#include "collectives/gpu/pointer.h"
#include "common/base/log.h"
#include "tests/unit/gpu_ranks.h"
#include "tests/unit/run_test.h"
#include "tests/unit/scratch.h"

extern const int pack_image_cuda; /* made by the Makefile */

#define STRANGER "libanl.so.1" /* of libc, and nobody has opened it */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- the libraries ---- */

/* No CUDA: nothing is asked, everything is the host's; somebody opens it: noticed. */
START_TEST(is_cuda_here)
{
    struct err e = ERR_INIT;
    struct pointer p;
    int local;
    uint64_t best = UINT64_MAX;
    ck_assert(!driver_in_process());
    for (int round = 0; round < 20; round++) {
        uint64_t begin = now_ns();
        int yes = 0;
        for (int i = 0; i < 10000; i++)
            yes += driver_in_process();
        ck_assert_int_eq(yes, 0);
        uint64_t took = (now_ns() - begin) / 10000;
        best = took < best ? took : best;
    }
    ck_assert_msg(best < (is_emulated() ? 3000 : 300), "%d ns a call", (int)best); /* some 20; dlopen: 500 */
    ck_assert_int_eq(pointer_find(&local, &p, &e), 0);
    ck_assert(!p.device);
    ck_assert(!driver_in_process());
    void *other = dlopen(STRANGER, RTLD_NOW);
    ck_assert_ptr_nonnull(other);
    ck_assert(!driver_in_process());
    void *cuda = dlopen(DRIVER_LIBRARY, RTLD_NOW);
    ck_assert_ptr_nonnull(cuda);
    ck_assert(driver_in_process());
    dlclose(other);
    const struct driver *d = driver_open(&e);
    ck_assert_msg(d != NULL, "%s", e.text);
    ck_assert_ptr_eq(driver_open(NULL), d);
    ck_assert_int_ge(d->version, 11000);
}
END_TEST

static int prepared;

static int refuse(void *handle, struct err *e)
{
    prepared++;
    ck_assert_ptr_nonnull(handle);
    return err_set(e, ERR_UNSUPPORTED, "not today");
}

/* A failure is told again without being found out again, until another library comes. */
START_TEST(failures_are_remembered)
{
    struct library none = LIBRARY_INIT("such thing", "libno-such-thing.so.9", refuse),
                   bad = LIBRARY_INIT("NCCL", NCCL_LIBRARY, refuse);
    for (int i = 0; i < 3; i++) {
        struct err e = ERR_INIT;
        ck_assert_int_eq(library_open(&none, &e), -1);
        ck_assert_ptr_nonnull(strstr(e.text, "there is no such thing: libno-such-thing.so.9: cannot open"));
        ck_assert_int_eq(e.code, ERR_UNSUPPORTED);
        ck_assert(!library_in_process(&none));
        err_clear(&e);
        ck_assert_int_eq(library_open(&bad, &e), -1);
        ck_assert_str_eq(e.text, "not today");
    }
    ck_assert_int_le(prepared, 2); /* opening it has itself counted once */
    int before = prepared;
    ck_assert_ptr_nonnull(dlopen(STRANGER, RTLD_NOW));
    ck_assert_int_eq(library_open(&bad, NULL), -1);
    ck_assert_int_eq(prepared, before + 1);
}
END_TEST

START_TEST(no_gpu_no_driver)
{
    struct err e = ERR_INIT;
    struct pointer p;
    setenv("HVD_DOUBLE_GPUS", "0", 1);
    ck_assert_ptr_null(driver_open(&e));
    ck_assert_str_eq(
        e.text, "the CUDA driver cannot be used: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)");
    ck_assert_ptr_nonnull(dlopen(DRIVER_LIBRARY, RTLD_NOW));
    ck_assert_int_eq(pointer_find(&p, &p, &e), 0);
    ck_assert(!p.device);
}
END_TEST

START_TEST(an_old_driver)
{
    struct err e = ERR_INIT;
    const struct driver *d = driver_open(&e);
    ck_assert_msg(d != NULL, "%s", e.text);
    struct driver old = *d;
    old.version = 11040;
    old.cuMemExportToShareableHandle = NULL;
    ck_assert_int_eq(driver_need(d, DRIVER_VMM, &e), 0);
    ck_assert_int_eq(driver_need(&old, DRIVER_VMM, &e), -1);
    ck_assert_str_eq(e.text, "the CUDA driver (11.4) is too old: it lacks cuMemExportToShareableHandle");
    ck_assert_str_eq(driver_lacks(&old, DRIVER_VMM), "cuMemExportToShareableHandle");
    ck_assert_ptr_null(driver_lacks(&old, DRIVER_IPC));
    err_clear(&e);
    ck_assert_int_eq(driver_check(d, CU_OUT_OF_MEMORY, &e, "taking %d bytes", 12), -1);
    ck_assert_int_eq(e.code, ERR_MEMORY);
    ck_assert_ptr_nonnull(strstr(e.text, "taking 12 bytes: CUDA_ERROR_OUT_OF_MEMORY ("));
    old.cuGetErrorName = NULL;
    old.cuGetErrorString = NULL;
    err_clear(&e);
    driver_check(&old, 77, &e, "it");
    ck_assert_str_eq(e.text, "it: an unknown CUDA error (77)");
}
END_TEST

START_TEST(nccl_is_opened)
{
    struct err e = ERR_INIT;
    const struct nccl *n = nccl_open(&e);
    ck_assert_msg(n != NULL, "%s", e.text);
    ck_assert_int_ge(n->version, NCCL_OLDEST);
    ck_assert_str_eq(nccl_version_text(22809).text, "2.28.9");
    ck_assert_str_eq(nccl_version_text(2604).text, "2.6.4");
    ck_assert_int_eq(nccl_check(n, NCCL_IN_PROGRESS, NULL, &e, "it"), 0);
    ck_assert_int_eq(nccl_check(n, NCCL_REMOTE_ERROR, NULL, &e, "it"), -1);
    ck_assert_int_eq(e.code, ERR_CLOSED);
    ck_assert_int_eq(strncmp(e.text, "it: NCCL: ", 10), 0);
}
END_TEST

/* ---- pointers ---- */

static struct gpu_rank me = {.rank = 1, .size = 2};

static void open_gpu(void)
{
    setenv("HVD_DOUBLE_GPUS", "2", 1);
    gpu_open(&me);
}

static void is(const void *at, bool device, const char *text)
{
    struct err e = ERR_INIT;
    struct pointer p;
    ck_assert_msg(pointer_find(at, &p, &e) == 0, "%s", e.text);
    ck_assert_int_eq(p.device, device);
    ck_assert_int_eq(p.ordinal, device ? 1 : -1);
    ck_assert_str_eq(pointer_text(&p).text, text);
}

static void range_is(char *at, size_t offset, size_t bytes, enum pointer_export exported)
{
    struct err e = ERR_INIT;
    struct pointer_range r;
    ck_assert_msg(pointer_range(at + offset, &r, &e) == 0, "%s", e.text);
    ck_assert_uint_eq(r.base, (uintptr_t)at);
    ck_assert_uint_eq(r.bytes, bytes);
    ck_assert_int_eq(r.exported, exported);
}

static char *mapped(size_t bytes, unsigned handle_types)
{
    struct cu_allocation_properties how = {
        .type = CU_ALLOCATION_PINNED, .handle_types = handle_types, .location = {CU_LOCATION_DEVICE, 1}};
    struct cu_access access = {{CU_LOCATION_DEVICE, 1}, CU_ACCESS_READ_WRITE};
    cu_allocation made;
    cu_pointer at;
    ck_assert_int_eq(me.d->cuMemCreate(&made, bytes, &how, 0), CU_OK);
    ck_assert_int_eq(me.d->cuMemAddressReserve(&at, bytes, 0, 0, 0), CU_OK);
    ck_assert_int_eq(me.d->cuMemMap(at, bytes, 0, made, 0), CU_OK);
    ck_assert_int_eq(me.d->cuMemSetAccess(at, bytes, &access, 1), CU_OK);
    return (char *)(uintptr_t)at;
}

START_TEST(pointers_are_told_apart)
{
    struct err e = ERR_INIT;
    struct pointer p;
    struct pointer_range r;
    void *pinned;
    const size_t big = 4 << 20;
    open_gpu();
    char *device = gpu_memory(&me, NULL, 4095), *host = malloc(1000);
    is(NULL, false, "host memory");
    is(host, false, "host memory");
    is(&e, false, "host memory");
    is(device, true, "memory of GPU 1");
    is(device + 4095, true, "memory of GPU 1");
    ck_assert_int_eq(me.d->cuMemHostAlloc(&pinned, 4096, 0), CU_OK);
    is(pinned, false, "host memory");
    ck_assert_int_eq(pointer_find(device, &p, &e), 0);
    ck_assert_ptr_eq(p.context, me.context);
    range_is(device, 17, 4096, POINTER_BY_IPC);
    ck_assert_int_eq(pointer_range(host, &r, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "finding the allocation around "));
    char *shared = mapped(big, CU_HANDLE_FD), *own = mapped(big, 0);
    is(shared + 5, true, "memory of GPU 1");
    range_is(shared, big / 2, big, POINTER_BY_FD);
    range_is(own, 1, big, POINTER_NOT_EXPORTED);
    gpu_free(&me, device);
    free(host);
}
END_TEST

/* The driver's answer is then no reason to refuse memory of the host. Memory of a GPU is not taken for the
 * host's. */
static void the_driver_does_not_answer(const char *device, cu_result result)
{
    static char constant[100];
    struct err e = ERR_INIT;
    struct pointer p;
    char *host = malloc(100);
    unsigned type = 0;
    ck_assert_int_eq(me.d->cuPointerGetAttribute(&type, CU_POINTER_MEMORY_TYPE, (uintptr_t)device), result);
    is(host, false, "host memory");
    is(host + 99, false, "host memory");
    is(constant, false, "host memory");
    is("constant", false, "host memory");
    ck_assert_int_eq(pointer_find(device, &p, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, driver_error_name(me.d, result)));
    free(host);
}

/* While the process ends, without a context, after a fault. */
START_TEST(pointers_in_trouble)
{
    static const cu_result results[] = {CU_DEINITIALIZED, CU_INVALID_CONTEXT, 700, 999};
    if (gpu_real())
        return;
    open_gpu();
    void *here = dlopen(DRIVER_LIBRARY, RTLD_NOW), *found = dlsym(here, "double_fail");
    void (*let_fail)(const char *);
    ck_assert_ptr_nonnull(found);
    memcpy(&let_fail, &found, sizeof let_fail);
    char *device = gpu_memory(&me, NULL, 4096), list[100];
    for (size_t i = 0; i < sizeof results / sizeof results[0]; i++) {
        snprintf(list, sizeof list, "cuPointerGetAttribute:1+:%u,cuPointerGetAttributes:1+:%u", results[i],
                 results[i]);
        let_fail(list);
        the_driver_does_not_answer(device, results[i]);
    }
    let_fail("");
    is(device, true, "memory of GPU 1");
    dlclose(here);
}
END_TEST

START_TEST(pointers_in_a_child)
{
    int status = 0;
    open_gpu();
    char *device = gpu_memory(&me, NULL, 4096);
    pid_t child = fork();
    if (child == 0) {
        the_driver_does_not_answer(device, CU_NOT_INITIALIZED);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_gpu_is_described)
{
    struct err e = ERR_INIT;
    struct driver_device one, other;
    open_gpu();
    ck_assert_int_eq(driver_describe(me.d, 1, &one, &e), 0);
    ck_assert_int_eq(driver_describe(me.d, 0, &other, &e), 0);
    ck_assert_int_ge(one.capability, 50);
    ck_assert_int_ge(one.processors, 1);
    ck_assert_ptr_nonnull(strchr(one.bus, ':'));
    ck_assert(strcmp(one.bus, other.bus) != 0 && memcmp(one.uuid, other.uuid, sizeof one.uuid) != 0);
    ck_assert_int_eq(driver_describe(me.d, 7, &one, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "asking what GPU 7 is: CUDA_ERROR_INVALID_DEVICE"));
}
END_TEST

/* ---- packing ---- */

#define PIECES 300

/* Pieces of all lengths and alignments, in one go or, without kernels, one by one. */
static void pack_and_compare(const struct pack *pack)
{
    struct err e = ERR_INIT;
    struct pack_piece piece[PIECES];
    static char content[PIECES * 300], back[PIECES * 300];
    size_t at = 0;
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (char)(i * 7 + i / 251);
    char *from = gpu_memory(&me, content, sizeof content), *to = gpu_memory(&me, NULL, sizeof content);
    ck_assert_int_eq(me.d->cuMemsetD8Async((cu_pointer)(uintptr_t)to, 0, sizeof content, me.stream), CU_OK);
    for (size_t k = 0; k < PIECES; k++) {
        size_t count = k % 7 == 3 ? 0 : k * 37 % 290;
        piece[k] =
            (struct pack_piece){(cu_pointer)(uintptr_t)(to + at), (cu_pointer)(uintptr_t)(from + at), count};
        memset(content + at + count, 0, 300 - count); /* these bytes stay as they were */
        at += 300;
    }
    ck_assert_msg(pack_copy(pack, piece, PIECES, me.stream, &e) == 0, "%s", e.text);
    gpu_read(&me, back, to, sizeof back);
    ck_assert_int_eq(memcmp(back, content, sizeof back), 0);
    gpu_free(&me, from);
    gpu_free(&me, to);
}

START_TEST(pieces_are_packed)
{
    struct err e = ERR_INIT;
    open_gpu();
    struct driver old = *me.d;
    old.cuLaunchKernel = NULL;
    struct pack *without = pack_open(&old, &e);
    ck_assert(!pack_has_kernels(without));
    ck_assert_int_eq(pack_has_kernels(me.pack), pack_was_built());
    pack_and_compare(me.pack);
    pack_and_compare(without);
    struct pack_piece nothing = {0};
    ck_assert_int_eq(pack_scale(without, &nothing, 1, HVD_FLOAT32, 2, me.stream, &e), -1);
    ck_assert_str_eq(e.text, "there are no kernels for scaling");
    ck_assert_int_eq(e.code, ERR_UNSUPPORTED);
    pack_close(without);
}
END_TEST

static cu_result refuse_image(cu_module *module, const void *image)
{
    return 200; /* CUDA_ERROR_INVALID_IMAGE */
}

static cu_result refuse_function(cu_function *function, cu_module module, const char *name)
{
    return 500; /* CUDA_ERROR_NOT_FOUND */
}

static int modules_unloaded;

static cu_result count_unloaded(cu_module module)
{
    modules_unloaded++;
    return me.d->cuModuleUnload(module);
}

static int lines_said;
static char line_said[1000];

static void take_line(const char *bytes, size_t n)
{
    lines_said++;
    snprintf(line_said, sizeof line_said, "%.*s", (int)n, bytes);
}

/* Kernels for a newer driver: one warning, with the remedy. */
START_TEST(kernels_that_the_driver_refuses)
{
    struct err e = ERR_INIT;
    char expected[500];
    if (!pack_was_built())
        return;
    open_gpu();
    struct driver old = *me.d;
    old.cuModuleLoadData = refuse_image;
    if (_i == 1) {
        old.version = 11040;
        snprintf(
            expected, sizeof expected,
            "hvd: warning: the driver (CUDA 11.4) does not take the kernels of libhvd, which nvcc %d.%d made "
            "(CUDA_ERROR_INVALID_IMAGE): a driver with CUDA %d.%d or newer takes them, or a build "
            "with nvcc 11.4 or older; until then",
            pack_image_cuda / 1000, pack_image_cuda % 1000 / 10, pack_image_cuda / 1000,
            pack_image_cuda % 1000 / 10);
    } else {
        old.version = pack_image_cuda;
        snprintf(expected, sizeof expected, ": a build whose GPU_CODES name this GPU has some that fit; ");
    }
    if (_i == 2)
        setenv("HVD_LOCAL_RANK", "1", 1); /* the host's first rank says it */
    log_to(take_line);
    for (int i = 0; i < 2; i++) {
        struct pack *without = pack_open(&old, &e);
        ck_assert(without && !pack_has_kernels(without));
        pack_close(without);
    }
    ck_assert_int_eq(lines_said, (_i != 2));
    ck_assert_msg(_i == 2 || strstr(line_said, expected), "%s", line_said);
}
END_TEST

/* A code without one of them is given back at once. */
START_TEST(kernels_that_the_driver_does_not_find)
{
    struct err e = ERR_INIT;
    if (!pack_was_built())
        return;
    open_gpu();
    struct driver old = *me.d;
    old.cuModuleGetFunction = refuse_function;
    old.cuModuleUnload = count_unloaded;
    log_to(take_line);
    struct pack *without = pack_open(&old, &e);
    ck_assert(without && !pack_has_kernels(without));
    ck_assert_int_eq(modules_unloaded, 1);
    pack_close(without);
    ck_assert_int_eq(modules_unloaded, 1);
    ck_assert_int_eq(lines_said, 1);
    ck_assert_ptr_nonnull(strstr(line_said, "does not find the kernels of libhvd"));
}
END_TEST

START_TEST(launches_of_packing)
{
    char trace[SCRATCH_MAX], line[300];
    int launches = 0;
    if (!pack_was_built())
        return;
    close(scratch_file(trace, "pack"));
    open_gpu();
    setenv("HVD_DOUBLE_TRACE", trace, 1);
    pack_and_compare(me.pack);
    unsetenv("HVD_DOUBLE_TRACE");
    FILE *f = fopen(trace, "r");
    while (fgets(line, sizeof line, f)) {
        launches += strstr(line, "cuLaunchKernel") != NULL;
        ck_assert_ptr_null(strstr(line, "cuMemcpyDtoD"));
    }
    fclose(f);
    unlink(trace);
    ck_assert_int_eq(launches, 2); /* of at most 128 pieces that are not empty */
}
END_TEST

START_TEST(integers_are_cut_and_kept_in_range)
{
    struct err e = ERR_INIT;
    const int8_t before[] = {100, -100, 3, -3, 0, 127, -128}, twice[] = {127, -128, 4, -4, 0, 127, -128};
    int8_t after[7];
    if (!pack_was_built())
        return;
    open_gpu();
    char *at = gpu_memory(&me, before, sizeof before);
    struct pack_piece piece = {(cu_pointer)(uintptr_t)at, (cu_pointer)(uintptr_t)at, 7};
    ck_assert_int_eq(pack_scale(me.pack, &piece, 1, HVD_INT8, 1.5, me.stream, &e), 0);
    gpu_read(&me, after, at, sizeof after);
    ck_assert_int_eq(memcmp(after, twice, sizeof after), 0);
    ck_assert_int_eq(pack_scale(me.pack, &piece, 1, HVD_BOOL, 1.5, me.stream, &e), -1);
    ck_assert_str_eq(e.text, "bool is not scaled");
}
END_TEST

int main(int argc, char **argv)
{
    gpu_with_doubles(argv);
    setenv("HVD_DOUBLE_DELAY_US", "20", 0);
    setenv("HVD_DOUBLE_LOG", "/dev/null", 0);
    Suite *s = suite_create("gpu_device");
    TCase *t = tcase_create("gpu_device");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, is_cuda_here);
    tcase_add_test(t, failures_are_remembered);
    tcase_add_test(t, no_gpu_no_driver);
    tcase_add_test(t, an_old_driver);
    tcase_add_test(t, nccl_is_opened);
    tcase_add_test(t, pointers_are_told_apart);
    tcase_add_test(t, pointers_in_trouble);
    tcase_add_test(t, pointers_in_a_child);
    tcase_add_test(t, a_gpu_is_described);
    tcase_add_test(t, pieces_are_packed);
    tcase_add_loop_test(t, kernels_that_the_driver_refuses, 0, 3);
    tcase_add_test(t, kernels_that_the_driver_does_not_find);
    tcase_add_test(t, launches_of_packing);
    tcase_add_test(t, integers_are_cut_and_kept_in_range);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
