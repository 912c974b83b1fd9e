/* hvdrun's side of --send-agent: the script, then the files when they are asked for, then nothing but the
 * agent's bytes; and what the script is made of. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/process/module.h"
#include "launcher/host/agent_upload.h"

/* needs: hvdagent hvd-engine modules */

static char script[] = "#script", files[] = "files";
static const struct sent_agent agent = {.script = script,
                                        .script_len = 7,
                                        .bytes = (uint8_t *)files,
                                        .len = 5,
                                        .have = "hvd-send 1-a have",
                                        .want = "hvd-send 1-a want"};

static enum sending_answer hear(struct host_sending *s, const char *text, size_t *used)
{
    return host_sending_receive(s, &agent, (const uint8_t *)text, strlen(text), used);
}

START_TEST(files_follow_when_they_are_wanted)
{
    struct host_sending s;
    size_t used;
    host_sending_begin(&s, &agent);
    ck_assert_ptr_eq(s.bytes, (uint8_t *)script);
    host_sending_written(&s, 7);
    ck_assert_uint_eq(s.left, 0);
    ck_assert_int_eq(hear(&s, "Welcome\r\nhvd-send 1-b want\nhvd-send 1-a wan", &used), SENDING_NONE);
    ck_assert_int_eq(hear(&s, "t\nrest", &used), SENDING_WANT);
    ck_assert_uint_eq(used, 2);
    ck_assert_ptr_eq(s.bytes, (uint8_t *)files);
    host_sending_written(&s, 5);
    ck_assert_msg(hear(&s, "\nhvd-send 1-a want\n", &used) == SENDING_NONE, "files are sent once");
    ck_assert_int_eq(hear(&s, "hvd-send 1-a have\nHVD", &used), SENDING_HAVE);
    ck_assert_uint_eq(used, strlen("hvd-send 1-a have\n"));
}
END_TEST

START_TEST(nothing_is_wanted_before_the_script_was_read)
{
    struct host_sending s;
    size_t used;
    host_sending_begin(&s, &agent);
    ck_assert_int_eq(hear(&s, "hvd-send 1-a want\n", &used), SENDING_NONE);
    ck_assert_ptr_eq(s.bytes, (uint8_t *)script);
}
END_TEST

START_TEST(a_long_line_is_no_answer)
{
    struct host_sending s;
    size_t used;
    char line[300];
    host_sending_begin(&s, &agent);
    host_sending_written(&s, 7);
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    ck_assert_int_eq(hear(&s, line, &used), SENDING_NONE);
    ck_assert_int_eq(hear(&s, "hvd-send 1-a have\n", &used), SENDING_NONE);
    ck_assert_int_eq(hear(&s, "hvd-send 1-a have\n", &used), SENDING_HAVE);
}
END_TEST

START_TEST(what_is_sent_is_complete)
{
    struct sent_agent a;
    struct err e = ERR_INIT;
    char dir[4096];
    ck_assert_int_eq(module_program_dir(dir, sizeof dir, &e), 0);
    *strrchr(dir, '/') = '\0'; /* build/tests */
    char *const words[] = {"attach", "--managed", NULL};
    struct sent_agent_want want = {SEND_AGENT_JOB, "1-a", dir, "/it's/here", words};
    ck_assert_msg(sent_agent_load(&a, &want, &e) == 0, "%s", e.text);
    ck_assert_uint_gt(a.len, 100000);
    ck_assert_uint_lt(a.len, SENT_AGENT_MAX);
    ck_assert_mem_eq(a.bytes, "\177ELF", 4);
    char *text = strndup(a.script, a.script_len);
    ck_assert_ptr_nonnull(strstr(text, "agent='/it'\\''s/here'\n"));
    ck_assert_ptr_nonnull(strstr(text, "words='attach --managed'\n"));
    ck_assert_ptr_nonnull(strstr(text, " modules/hvd-engine"));
    ck_assert_ptr_nonnull(strstr(text, " modules/auth.so"));
    ck_assert_msg(!strstr(text, "ssh.so") && !strstr(text, "yaml.so"), "hosts do not need these");
    ck_assert_str_eq(text + strlen(text) - 11, "}\nhvd_send\n");
    free(text);
    sent_agent_free(&a);
    want.program_dir = "/nowhere";
    ck_assert_int_lt(sent_agent_load(&a, &want, &e), 0);
    ck_assert_ptr_nonnull(strstr(e.text, "/nowhere/hvdagent"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("host_sending");
    TCase *c = tcase_create("host_sending");
    tcase_add_test(c, files_follow_when_they_are_wanted);
    tcase_add_test(c, nothing_is_wanted_before_the_script_was_read);
    tcase_add_test(c, a_long_line_is_no_answer);
    tcase_add_test(c, what_is_sent_is_complete);
    suite_add_tcase(s, c);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed > 0;
}
