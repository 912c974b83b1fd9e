/* The 1st, 2nd, 3rd ... malloc of a unit's function fails, until one is not reached: each time the function
 * must say so and give back all that it took.
 *
 * The linker sends the calls of our objects to the functions here (tests.mk, --wrap); what libc takes for
 * itself is not seen, so the functions tried are those that read no files. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/protocol/channel.h"
#include "launcher/cli/config.h"
#include "launcher/cli/environment.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/plan.h"

static unsigned long left; /* calls that still succeed, plus one; 0: all do */
static bool met;
static long living;

static bool fails(void)
{
    if (left == 0 || --left > 0)
        return false;
    met = true;
    return true;
}

static void *counted(void *pointer)
{
    living += pointer != NULL;
    return pointer;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_reallocarray(void *old, size_t count, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t most);
void __real_free(void *pointer);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_reallocarray(void *old, size_t count, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t most);
void __wrap_free(void *pointer);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (fails())
        return NULL;
    return old ? __real_realloc(old, size) : counted(__real_realloc(old, size));
}

void *__wrap_reallocarray(void *old, size_t count, size_t size)
{
    if (fails())
        return NULL;
    return old ? __real_reallocarray(old, count, size) : counted(__real_reallocarray(old, count, size));
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : counted(__real_strdup(text));
}

char *__wrap_strndup(const char *text, size_t most)
{
    return fails() ? NULL : counted(__real_strndup(text, most));
}

void __wrap_free(void *pointer)
{
    living -= pointer != NULL;
    __real_free(pointer);
}

/* ---- the functions under test -------------------------------------------------------------------------- */

static int try_hosts(struct err *e)
{
    struct host_list list;
    if (hosts_parse(&list, "me@a:4,b,[::1]:2,b,c:1,d,e,f,g,h,i", "-H", e) < 0)
        return -1;
    hosts_free(&list);
    return 0;
}

static int try_hostfile(struct err *e)
{
    static const char text[] = "a slots=4 max_slots=8\n# nobody\nb:2\nuser@c\nd\ne\nf\ng\nh\ni\nj\n";
    struct host_list list;
    if (hosts_parse_file(&list, text, sizeof text - 1, "hosts", e) < 0)
        return -1;
    hosts_free(&list);
    return 0;
}

static int try_plan(struct err *e)
{
    struct host_list list;
    struct plan plan;
    if (hosts_parse(&list, "a:4,b:3,c:2", "-H", e) < 0)
        return -1;
    int rc = plan_make(&plan, &list, list.count, &(struct plan_want){.np = 9}, e);
    if (rc == 0)
        plan_free(&plan);
    hosts_free(&list);
    return rc;
}

static int try_environment(struct err *e)
{
    char *set[] = {(char *)"A=1", (char *)"B", (char *)"C*"}, *unset[] = {(char *)"D*"};
    char *env[] = {(char *)"B=2", (char *)"C1=3", (char *)"C2=4", (char *)"D=5", (char *)"E=6", NULL};
    struct option_list sets = {.item = (const char **)set, .count = 3},
                       unsets = {.item = (const char **)unset, .count = 1};
    struct environment built;
    if (environment_build(&built, env, &sets, &unsets, true, e) < 0)
        return -1;
    environment_free(&built);
    return 0;
}

static int try_options(struct err *e)
{
    char *argv[] = {(char *)"hvdrun", (char *)"-np",  (char *)"4",    (char *)"-H",  (char *)"a:2,b:2",
                    (char *)"-x",     (char *)"A=1",  (char *)"-x",   (char *)"B=2", (char *)"--unset",
                    (char *)"C",      (char *)"true", (char *)"word", NULL};
    char *env[] = {(char *)"HVDRUN_GRACE=3", NULL};
    struct config config;
    if (config_parse(&config, 13, argv, env, e) < 0)
        return -1;
    config_free(&config);
    return 0;
}

static void ignore_control(void *ctx, const Hvd__Control *m)
{
    *(unsigned *)ctx += m->body_case == HVD__CONTROL__BODY_NOTICE;
}

static void ignore_data(void *ctx, const struct frame *f)
{
    *(unsigned *)ctx += f->length == FRAME_DATA_MAX;
}

/* From one end to the other: a message and bytes. */
static int carry(struct channel *from, struct channel *to, struct err *e)
{
    static const char big[FRAME_DATA_MAX];
    const uint8_t *bytes;
    size_t len;
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.text = (char *)"something";
    CONTROL(m, NOTICE, notice, &notice);
    if (channel_send(from, &m) < 0 || channel_send_data(from, 1, STREAM_STDOUT, 0, big, sizeof big) < 0)
        return err_set(e, ERR_MEMORY, "not sent");
    while ((len = channel_output(from, &bytes)) > 0) {
        if (channel_receive(to, bytes, len, e) < 0)
            return -1;
        channel_written(from, len);
    }
    return channel_is_starved(from) ? err_set(e, ERR_MEMORY, "starved") : 0;
}

static int try_channel(struct err *e)
{
    static const struct channel_events events = {ignore_control, ignore_data, NULL};
    struct channel launcher, session;
    unsigned came = 0;
    channel_init(&launcher, &events, &came, true, 1 << 20);
    channel_init(&session, &events, &came, false, 1 << 20);
    channel_set_session(&session, 0);
    int rc = carry(&session, &launcher, e);
    left = 0; /* Check allocates too */
    if (rc == 0)
        ck_assert_uint_eq(came, 2);
    channel_free(&launcher);
    channel_free(&session);
    return rc;
}

static const struct {
    const char *name;
    int (*run)(struct err *e);
    bool bears; /* it may also go on without, and lose nothing */
} trials[] = {
    {"hosts", try_hosts, false},     {"hostfile", try_hostfile, false},
    {"plan", try_plan, false},       {"environment", try_environment, false},
    {"options", try_options, false}, {"channel", try_channel, true},
};

START_TEST(each_failed_allocation_is_said_and_nothing_leaks)
{
    unsigned long n = 0;
    do {
        struct err e = ERR_INIT;
        long before = living;
        met = false;
        left = ++n;
        int rc = trials[_i].run(&e);
        left = 0;
        ck_assert_msg(met ? rc < 0 || trials[_i].bears : rc == 0, "%s: call %lu: %d %s", trials[_i].name, n,
                      rc, e.text);
        ck_assert_msg(rc == 0 || (e.code == ERR_MEMORY && e.text[0]), "%s: call %lu: says '%s'",
                      trials[_i].name, n, e.text);
        ck_assert_msg(living == before, "%s: call %lu: %ld pieces were not given back", trials[_i].name, n,
                      living - before);
        ck_assert_uint_lt(n, 1000);
    } while (met);
    ck_assert_uint_gt(n, 2); /* something was tried */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("countdown");
    TCase *t = tcase_create("countdown");
    suite_add_tcase(suite, t);
    tcase_add_loop_test(t, each_failed_allocation_is_said_and_nothing_leaks, 0,
                        sizeof trials / sizeof *trials);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
