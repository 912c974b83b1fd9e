/* Memory that is mapped at addresses of this process: which GPUs can use it there. */
/* needs: tests/unit/gpu_ranks.c */
#include <check.h>
#include <stdlib.h>

#include "collectives/gpu/driver.h"
#include "collectives/gpu/mapping.h"
#include "collectives/gpu/pack.h"
#include "tests/unit/gpu_ranks.h"

#define BYTES ((size_t)2 << 20)

#define OK(call) ck_assert_uint_eq((call), CU_OK)

static const struct driver *d;
static cu_context context[2];
static struct mapping_part part = {.bytes = BYTES};
static cu_pointer at;

/* false: this machine has one GPU. */
static bool two_gpus(void)
{
    const struct cu_allocation_properties how = {
        .type = CU_ALLOCATION_PINNED, .handle_types = CU_HANDLE_FD, .location = {CU_LOCATION_DEVICE, 0}};
    struct err e = ERR_INIT;
    int n = 0;

    d = driver_open(&e);
    ck_assert_msg(d != NULL, "%s", e.text);
    OK(d->cuDeviceGetCount(&n));
    if (n < 2)
        return false;
    OK(d->cuDevicePrimaryCtxRetain(&context[0], 0));
    OK(d->cuDevicePrimaryCtxRetain(&context[1], 1));
    OK(d->cuCtxSetCurrent(context[0]));
    OK(d->cuMemCreate(&part.allocation, BYTES, &how, 0));
    ck_assert_msg(mapping_open(d, 0, &part, 1, &at, &e) == 0, "%s", e.text);
    return true;
}

/* Kernels of that GPU read the memory. */
static cu_result use(int gpu)
{
    struct err e = ERR_INIT;
    struct pack *pack;
    cu_pointer to;
    cu_stream stream;
    cu_result result;

    OK(d->cuCtxSetCurrent(context[gpu]));
    OK(d->cuMemAlloc(&to, BYTES));
    ck_assert_int_eq(driver_stream(d, &stream, &e), 0);
    ck_assert_ptr_nonnull(pack = pack_open(d, &e));
    const struct pack_piece piece[] = {{to, at, 1000}, {to + 1000, at + 1000, BYTES - 1000}};
    ck_assert_int_eq(pack_copy(pack, piece, 2, stream, &e), 0);
    result = d->cuStreamSynchronize(stream);
    pack_forget(pack);
    return result;
}

START_TEST(every_gpu_that_can_has_access)
{
    int can = 0;

    if (!two_gpus())
        return;
    OK(use(0));
    OK(d->cuDeviceCanAccessPeer(&can, 1, 0));
    if (can)
        OK(use(1));
    mapping_close(d, at, BYTES);
}
END_TEST

START_TEST(no_gpu_is_given_what_it_cannot_have)
{
    if (gpu_real())
        return;
    setenv("HVD_DOUBLE_PEERS", "0", 1);
    ck_assert(two_gpus());
    OK(use(0));
    ck_assert_uint_ne(use(1), CU_OK);
}
END_TEST

/* Then it is the GPU's own alone. */
START_TEST(a_driver_that_gives_no_access_to_others)
{
    if (gpu_real())
        return;
    setenv("HVD_DOUBLE_FAIL", "cuMemSetAccess:1", 1);
    ck_assert(two_gpus());
    OK(use(0));
}
END_TEST

int main(int argc, char **argv)
{
    gpu_with_doubles(argv);
    setenv("HVD_DOUBLE_GPUS", "2", 1);
    setenv("HVD_DOUBLE_LOG", "/dev/null", 0);
    Suite *s = suite_create("gpu_mapping");
    TCase *t = tcase_create("gpu_mapping");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, every_gpu_that_can_has_access);
    tcase_add_test(t, no_gpu_is_given_what_it_cannot_have);
    tcase_add_test(t, a_driver_that_gives_no_access_to_others);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    (void)argc;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
