/* Memory of another process, as an engine opens it: its size is the driver's word, not the rank's. */
/* needs: engine tests/unit/gpu_ranks.c */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/gpu/gpu.h"
#include "tests/unit/gpu_ranks.h"

#define BYTES 8192

static void own_memory(struct gpu_rank *me)
{
    void *at = gpu_memory(me, NULL, BYTES - 1); /* whole pages */
    struct cu_ipc_memory handle;
    WANT(me->d->cuIpcGetMemHandle(&handle, (cu_pointer)(uintptr_t)at) == CU_OK);
    memcpy(&me->shared->id, &handle, sizeof handle);
    gpu_meet(me, 0);
    gpu_meet(me, 1);
    gpu_free(me, at);
}

static struct worker_message ask(struct engine *engine, uint32_t type, uint32_t id,
                                 const struct worker_device *q)
{
    struct worker_reader reader = {.message = {.type = type, .id = id}};
    struct worker_message a = {.status = HVD_SUCCESS};
    memcpy(reader.message.text, q, sizeof *q);
    WANT(engine_gpus_answer(engine, 0, &reader, &a));
    return a;
}

static void open_it(struct gpu_rank *me)
{
    static const uint64_t too_many[] = {BYTES + 1, 1 << 30, UINT64_MAX};
    struct gpu_owner owner = {.memories = 0};
    struct engine_gpus devices = {.driver = me->d, .owner = &owner};
    struct engine *engine = calloc(1, sizeof *engine);
    struct worker_device q = {.gpu = 0, .bytes = BYTES};
    struct worker_message a;
    WANT(engine && me->d->cuDevicePrimaryCtxRetain(&devices.gpu[0].context, 0) == CU_OK);
    engine->gpus = &devices;
    engine->workers.members = 1;
    gpu_meet(me, 0);
    memcpy(q.handle, &me->shared->id, sizeof q.handle);
    a = ask(engine, WORKER_DEVICE_MEMORY, 0, &q);
    WANT(a.status == HVD_SUCCESS && a.id == 1, "%s", a.text);
    ask(engine, WORKER_DEVICE_FORGET, a.id, &q);
    for (size_t i = 0; i < sizeof too_many / sizeof too_many[0]; i++) {
        q.bytes = too_many[i];
        a = ask(engine, WORKER_DEVICE_MEMORY, 0, &q);
        WANT(a.status == HVD_ERR_SYSTEM && !owner.memory[0].at, "%llu bytes",
             (unsigned long long)too_many[i]);
        WANT(strstr(a.text, "bytes of an allocation of 8192"), "%s", a.text);
    }
    gpu_meet(me, 1);
    free(owner.memory);
    free(engine);
}

static void body(struct gpu_rank *me)
{
    gpu_open(me);
    if (me->rank == 0)
        own_memory(me);
    else
        open_it(me);
}

START_TEST(sizes)
{
    ck_assert_int_eq(gpu_run(2, -1, body), 0);
}
END_TEST

int main(int argc, char **argv)
{
    gpu_with_doubles(argv);
    setenv("HVD_DOUBLE_DELAY_US", "20", 0);
    Suite *s = suite_create("gpu_memory");
    TCase *t = tcase_create("gpu_memory");
    tcase_set_timeout(t, 30);
    tcase_add_test(t, sizes);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    (void)argc;
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
