/* Files for the workers, as the session takes them: whole and verified, or not at all. */
/* needs: modules */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/preload_files.h"
#include "agent/guard/job_dir.h"
#include "common/protocol/message.h"
#include "tests/unit/scratch.h"

static struct job_dir dir;
static struct preload_files p;
static struct err e;

static void set_up(void)
{
    ck_assert_ptr_nonnull(scratch_dir(dir.path, "preload"));
    dir.fd = open(dir.path, O_RDONLY | O_DIRECTORY);
    p = (struct preload_files){.fd = -1, .dir_fd = -1};
    e = (struct err)ERR_INIT;
}

static void tear_down(void)
{
    preload_files_close(&p);
    close(dir.fd);
    ck_assert_int_eq(remove_tree(AT_FDCWD, dir.path, 2), 0);
}

struct text {
    const char *name, *bytes;
    bool executable;
};

static Hvd__Preload *announce(const struct text *text, size_t count)
{
    static Hvd__PreloadFile item[4], *list[4];
    static uint8_t digest[4][AUTH_DIGEST_SIZE];
    Hvd__Preload asked = HVD__PRELOAD__INIT;
    const struct auth_ops *auth = auth_open(&e);
    size_t room = 1 << 20;
    ck_assert_ptr_nonnull(auth);
    for (size_t i = 0; i < count; i++) {
        hvd__preload_file__init(list[i] = &item[i]);
        item[i].name = (char *)(uintptr_t)text[i].name;
        item[i].size = strlen(text[i].bytes);
        item[i].executable = text[i].executable;
        ck_assert_int_eq(auth->digest(text[i].bytes, item[i].size, digest[i]), 0);
        item[i].digest = (ProtobufCBinaryData){AUTH_DIGEST_SIZE, digest[i]};
    }
    asked.file = list;
    asked.n_file = count;
    Hvd__Preload *copy = message_copy(&asked.base, &room);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

static int put(uint32_t index, const char *bytes)
{
    return preload_files_put(&p, index, (const uint8_t *)bytes, strlen(bytes), &e);
}

static const struct text two[] = {{"data", "some bytes", false}, {"empty", "", false}, {"prog", "#!", true}};

START_TEST(whole_and_in_pieces)
{
    char path[200], back[16] = "";
    struct stat st;
    ck_assert_int_eq(preload_files_open(&p, &dir, announce(two, 3), &e), 0);
    ck_assert_int_eq(put(0, "some "), 0);
    ck_assert(!preload_files_path(&p, 1, path, sizeof path)); /* not yet */
    ck_assert_int_eq(put(0, "bytes"), 0);
    ck_assert_int_eq(put(2, "#!"), 0);
    ck_assert(preload_files_are_complete(&p));
    ck_assert(preload_files_path(&p, 1, path, sizeof path));
    int fd = open(path, O_RDONLY);
    ck_assert_int_eq(read(fd, back, sizeof back), 10);
    close(fd);
    ck_assert_str_eq(back, "some bytes");
    ck_assert(stat(path, &st) == 0 && (st.st_mode & 07777) == 0600);
    ck_assert(preload_files_path(&p, 2, path, sizeof path) && stat(path, &st) == 0 && st.st_size == 0);
    ck_assert(preload_files_path(&p, 3, path, sizeof path) && stat(path, &st) == 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert(!preload_files_path(&p, 0, path, sizeof path) && !preload_files_path(&p, 4, path, sizeof path));
}
END_TEST

START_TEST(damaged)
{
    ck_assert_int_eq(preload_files_open(&p, &dir, announce(two, 1), &e), 0);
    ck_assert_int_eq(put(0, "some bytEs"), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "data was damaged on its way"));
    ck_assert(!preload_files_are_complete(&p));
}
END_TEST

START_TEST(bytes_that_do_not_belong)
{
    ck_assert_int_eq(preload_files_open(&p, &dir, announce(two, 3), &e), 0);
    ck_assert_int_eq(put(1, "x"), -1); /* of another file */
    ck_assert_int_eq(put(0, "some bytes and more"), -1);
    ck_assert_int_eq(put(0, "some bytes"), 0);
    ck_assert_int_eq(put(2, "#!"), 0);
    ck_assert_int_eq(put(2, "more"), -1);
    ck_assert_int_eq(e.code, ERR_PROTOCOL);
}
END_TEST

static const char *const bad_names[] = {"", ".", "..", "../x", "a/b", "/etc/passwd"};

START_TEST(names_that_are_paths)
{
    const struct text text = {bad_names[_i], "x", false};
    Hvd__Preload *asked = announce(&text, 1);
    ck_assert_int_eq(preload_files_check(asked, &e), -1);
    message_free(asked);
    const struct text twice[] = {{"x", "x", false}, {"x", "x", false}};
    asked = announce(twice, 2);
    ck_assert_int_eq(preload_files_check(asked, &e), -1);
    message_free(asked);
}
END_TEST

START_TEST(a_limit_of_the_disk)
{
    struct text large = {"large", "", false};
    Hvd__Preload *asked = announce(&large, 1);
    asked->file[0]->size = 1ULL << 60;
    ck_assert_uint_eq(preload_files_need(asked).bytes, 1ULL << 60);
    ck_assert_int_eq(preload_files_open(&p, &dir, asked, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "cannot copy large, of 1152921504606846976 bytes"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("preload");
    TCase *c = tcase_create("preload");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, whole_and_in_pieces);
    tcase_add_test(c, damaged);
    tcase_add_test(c, bytes_that_do_not_belong);
    tcase_add_loop_test(c, names_that_are_paths, 0, sizeof bad_names / sizeof *bad_names);
    tcase_add_test(c, a_limit_of_the_disk);
    suite_add_tcase(suite, c);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
