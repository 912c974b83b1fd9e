/* The ssh transport against a real sshd. */
/* needs: ssh launcher tests/unit/ssh_server.c tests/unit/transport_run.c */
#include <check.h>
#include <libssh2.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/ssh_server.h"
#include "tests/unit/transport_run.h"

extern const struct transport_ops hvd_transport_ssh;

static struct ssh_server server;
static struct transport_run run;
static char identity[128];

static struct transport_target target_for(const char *command)
{
    snprintf(identity, sizeof identity, "%s/user", server.dir);
    return (struct transport_target){
        .host = "127.0.0.1", .port = server.port, .identity_file = identity, .command = command};
}

static void begin(const char *host_key, const char *extra)
{
    signal(SIGPIPE, SIG_IGN);
    run = (struct transport_run){.ops = &hvd_transport_ssh};
    ssh_server_start(&server, host_key, extra);
}

static void setup(void)
{
    begin("host_ed25519", NULL);
}

static void teardown(void)
{
    ssh_server_stop(&server);
}

static void go(const char *command)
{
    struct transport_target target = target_for(command);
    ck_assert_msg(run_transport(&run, &target), "%s", run.start_err.text);
}

static void again(void)
{
    run = (struct transport_run){.ops = &hvd_transport_ssh};
}

START_TEST(command_runs)
{
    run.greeting = "hello\n";
    go("read line; echo got $line; echo complaint >&2; exit 3");
    ck_assert_msg(!run.err.code, "%s", run.err.text);
    ck_assert_int_eq(run.opened, 1);
    ck_assert_int_eq(run.exit_status, 3);
    ck_assert_int_eq(run.term_signal, 0);
    ck_assert_str_eq(run.text, "got hello\n");
    ck_assert_str_eq(run.noise, "complaint\n");
    ck_assert_str_eq(run.peer, "127.0.0.1");
    ck_assert_uint_eq(run.phases, 31);
}
END_TEST

START_TEST(signal_is_told_from_status)
{
    go("kill -KILL $$");
    ck_assert_msg(!run.err.code, "%s", run.err.text);
    ck_assert_int_eq(run.term_signal, SIGKILL);
    ck_assert_int_eq(run.exit_status, -1);
}
END_TEST

START_TEST(end_is_seen_while_output_is_held)
{
    go("sleep 4 & echo out; exit 4");
    ck_assert_str_eq(run.text, "out\n");
    ck_assert_int_eq(run.exit_status, 4);
}
END_TEST

START_TEST(unknown_key_is_refused)
{
    char print[128];
    shell(&server, ": > home/.ssh/known_hosts");
    shell_output(&server, print, sizeof print, "ssh-keygen -lf host_ed25519.pub | cut -d' ' -f2");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_int_eq(run.last_phase, TRANSPORT_HOST_KEY);
    ck_assert_int_eq(run.opened, 0);
    ck_assert_msg(strstr(run.err.text, print) && strstr(run.err.text, "ssh-ed25519") &&
                      strstr(run.err.text, "127.0.0.1") && strstr(run.err.text, "home/.ssh/known_hosts"),
                  "%s", run.err.text);
    ck_assert_ptr_nonnull(strstr(run.err.hint, "ssh-keyscan -p"));
}
END_TEST

START_TEST(changed_key_is_refused)
{
    char is[128], was[128];
    shell(&server, "{ echo '# first'; printf '[127.0.0.1]:%u '; cat other.pub; } > home/.ssh/known_hosts",
          server.port);
    shell_output(&server, is, sizeof is, "ssh-keygen -lf host_ed25519.pub | cut -d' ' -f2");
    shell_output(&server, was, sizeof was, "ssh-keygen -lf other.pub | cut -d' ' -f2");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_msg(strstr(run.err.text, is) && strstr(run.err.text, was) &&
                      strstr(run.err.text, "known_hosts:2 "),
                  "%s", run.err.text);
}
END_TEST

START_TEST(revoked_key_is_refused)
{
    shell(&server, "{ printf '@revoked * '; cat host_ed25519.pub; } >> home/.ssh/known_hosts");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_msg(strstr(run.err.text, "revoked") && strstr(run.err.text, "known_hosts:2"), "%s",
                  run.err.text);
}
END_TEST

START_TEST(hashed_entry_is_found)
{
    shell(&server,
          "ssh-keygen -q -H -f home/.ssh/known_hosts >/dev/null 2>&1 && ! grep -q 127 home/.ssh/known_hosts");
    go("exit 5");
    ck_assert_msg(run.exit_status == 5, "%s", run.err.text);
}
END_TEST

START_TEST(entry_decides_key_type)
{
    /* The server has both keys; libssh2 by itself would ask for the ecdsa one, which nobody knows. */
    teardown();
    begin("host_ed25519", "HostKey host_ecdsa");
    go("exit 6");
    ck_assert_msg(run.exit_status == 6, "%s", run.err.text);
}
END_TEST

START_TEST(certificate_authority_needs_ssh)
{
    shell(&server, "{ printf '@cert-authority * '; cat other.pub; } > home/.ssh/known_hosts");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_UNSUPPORTED);
}
END_TEST

START_TEST(no_key_is_accepted)
{
    struct transport_target target = target_for("true");
    snprintf(identity, sizeof identity, "%s/other", server.dir);
    shell(&server, "ssh-keygen -q -t ed25519 -N secret -f home/.ssh/id_ed25519; cp other home/.ssh/id_ecdsa");
    ck_assert(run_transport(&run, &target));
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_int_eq(run.last_phase, TRANSPORT_AUTHENTICATION);
    ck_assert_msg(strstr(run.err.text, "/other: refused") &&
                      strstr(run.err.text, "id_ed25519: has a passphrase") &&
                      !strstr(run.err.text, "id_ecdsa"),
                  "%s", run.err.text);
    ck_assert_ptr_nonnull(strstr(run.err.hint, "ssh-copy-id"));
}
END_TEST

START_TEST(host_that_takes_passwords_only)
{
    teardown();
    begin("host_ed25519", "PubkeyAuthentication no\nPasswordAuthentication yes");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_msg(strstr(run.err.text, "accepts no public keys") && strstr(run.err.text, "only password"),
                  "%s", run.err.text);
    ck_assert_str_eq(run.err.hint,
                     "set PubkeyAuthentication yes in that host's sshd_config, then install a key");
}
END_TEST

START_TEST(default_identity_is_tried)
{
    struct transport_target target = target_for("exit 7");
    target.identity_file = NULL;
    shell(&server, "cp other home/.ssh/id_ed25519; cp user home/.ssh/id_ecdsa");
    ck_assert(run_transport(&run, &target));
    ck_assert_msg(run.exit_status == 7, "%s", run.err.text);
}
END_TEST

static void start_agent(const char *keys)
{
    char path[128];
    snprintf(path, sizeof path, "%s/agent", server.dir);
    ssh_agent_start(&server, path);
    setenv("SSH_AUTH_SOCK", path, 1);
    shell(&server, "ssh-add -q %s", keys);
}

/* libssh2 has known RSA with SHA-2 since 1.11; before that the ssh program is asked. */
static bool rsa_works(void)
{
    return libssh2_version(0x010b00) != NULL;
}

START_TEST(rsa_key_is_accepted_or_needs_ssh)
{
    struct transport_target target = target_for("exit 8");
    snprintf(identity, sizeof identity, "%s/rsa", server.dir);
    shell(&server, "ssh-keygen -q -t rsa -b 2048 -N '' -f rsa && cat rsa.pub >> authorized_keys");
    ck_assert(run_transport(&run, &target));
    if (!rsa_works()) {
        ck_assert_int_eq(run.err.code, ERR_UNSUPPORTED);
        ck_assert_msg(strstr(run.err.text, "RSA"), "%s", run.err.text);
        /* And the program that the launcher takes then does it. */
        char rsh[512];
        snprintf(rsh, sizeof rsh, "ssh -o UserKnownHostsFile=%s/home/.ssh/known_hosts", server.dir);
        run = (struct transport_run){.ops = &transport_exec};
        target.rsh = rsh;
        ck_assert(run_transport(&run, &target));
    }
    ck_assert_msg(run.exit_status == 8, "%s %s", run.err.text, run.noise);
}
END_TEST

START_TEST(rsa_key_of_the_agent)
{
    struct transport_target target = target_for("exit 9");
    target.identity_file = NULL;
    shell(&server, "ssh-keygen -q -t rsa -b 2048 -N '' -f rsa && cat rsa.pub > authorized_keys");
    start_agent("rsa");
    ck_assert(run_transport(&run, &target));
    if (rsa_works())
        ck_assert_msg(run.exit_status == 9, "%s", run.err.text);
    else
        ck_assert_msg(run.err.code == ERR_UNSUPPORTED, "%s", run.err.text);
}
END_TEST

START_TEST(rsa_host_key_is_accepted_or_needs_ssh)
{
    teardown();
    begin("host_rsa", NULL);
    go("exit 4");
    if (rsa_works())
        ck_assert_msg(run.exit_status == 4, "%s", run.err.text);
    else
        ck_assert_msg(run.err.code == ERR_UNSUPPORTED, "%s", run.err.text);
}
END_TEST

/* Starts an ssh-agent with keys in it; its socket goes into the environment. */
START_TEST(agent_key_is_accepted)
{
    struct transport_target target = target_for("exit 9");
    target.identity_file = NULL;
    start_agent("other user");
    ck_assert(run_transport(&run, &target));
    ck_assert_msg(run.exit_status == 9, "%s", run.err.text);
}
END_TEST

START_TEST(agent_keys_are_named)
{
    struct transport_target target = target_for("true");
    target.identity_file = NULL;
    start_agent("other");
    ck_assert(run_transport(&run, &target));
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_msg(strstr(run.err.text, "agent's other-key: refused"), "%s", run.err.text);
}
END_TEST

START_TEST(locked_agent_does_not_hang)
{
    struct transport_target target = target_for("exit 2");
    setenv("SSH_AUTH_SOCK", "/nonexistent/agent", 1);
    ck_assert(run_transport(&run, &target));
    ck_assert_msg(run.exit_status == 2, "%s", run.err.text);
}
END_TEST

START_TEST(refused_port_is_named)
{
    struct transport_target target = target_for("true");
    target.port = 1;
    ck_assert(run_transport(&run, &target));
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_int_eq(run.last_phase, TRANSPORT_CONNECT);
    ck_assert_str_eq(run.err.text, "cannot connect to 127.0.0.1 port 1: Connection refused");
}
END_TEST

START_TEST(unknown_host_is_named)
{
    struct transport_target target = target_for("true");
    target.host = "no-such-host.invalid";
    ck_assert(run_transport(&run, &target));
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_int_eq(run.last_phase, TRANSPORT_RESOLVE);
    ck_assert_msg(strstr(run.err.text, "host no-such-host.invalid"), "%s", run.err.text);
}
END_TEST

START_TEST(every_address_is_tried)
{
    /* localhost is ::1 first on many machines; sshd listens on 127.0.0.1 only. */
    struct transport_target target = target_for("exit 11");
    target.host = "localhost";
    shell(&server, "sed -i 's/127.0.0.1/localhost/' home/.ssh/known_hosts");
    ck_assert(run_transport(&run, &target));
    struct addrinfo *found = NULL;
    if (getaddrinfo("localhost", NULL, NULL, &found) != 0) { /* a machine whose /etc/hosts lacks that line */
        ck_assert_msg(strstr(run.err.text, "unknown host localhost"), "%s", run.err.text);
        return;
    }
    freeaddrinfo(found);
    ck_assert_msg(run.exit_status == 11, "%s", run.err.text);
    ck_assert_str_eq(run.peer, "127.0.0.1");
}
END_TEST

START_TEST(not_an_ssh_server)
{
    struct transport_target target = target_for("true");
    target.port = fake_server("HTTP/1.0 400 Bad Request\r\n\r\n");
    ck_assert(run_transport(&run, &target));
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_int_eq(run.last_phase, TRANSPORT_HOST_KEY);
}
END_TEST

#define BULK (100UL * 1000 * 1000)

START_TEST(bulk_both_ways)
{
    run.to_send = BULK;
    run.close_after = BULK;
    go("cat");
    ck_assert_uint_eq(run.sent, BULK);
    ck_assert_msg(run.received == BULK, "%zu %s", run.received, run.err.text);
    ck_assert_uint_eq(run.checksum, pattern_checksum(BULK));
}
END_TEST

/* libssh2 1.10 loses the host key of every key exchange but the last, 51 bytes each. */
void __lsan_disable(void) __attribute__((weak));

START_TEST(bulk_survives_rekeying)
{
    if (__lsan_disable)
        __lsan_disable();
    size_t size = 20UL * 1000 * 1000;
    teardown();
    begin("host_ed25519", "RekeyLimit 1M");
    run.to_send = size;
    run.close_after = size;
    go("cat");
    ck_assert_msg(run.received == size, "%zu %s", run.received, run.err.text);
    ck_assert_uint_eq(run.checksum, pattern_checksum(size));
}
END_TEST

START_TEST(all_output_comes_before_the_end)
{
    go("head -c 30000000 /dev/zero; head -c 1000 /dev/zero >&2; exit 12");
    ck_assert_uint_eq(run.received, 30000000);
    ck_assert_int_eq(run.exit_status, 12);
}
END_TEST

START_TEST(close_from_our_side_is_eof_there)
{
    char marker[256];
    run.close_when_opened = true;
    go("cat >/dev/null");
    ck_assert_int_eq(run.exit_status, -1);
    ck_assert(!run.err.code);
    /* The command saw EOF of its stdin. */
    again();
    snprintf(marker, sizeof marker, "cat > %s/input; echo gone > %s/marker", server.dir, server.dir);
    run.greeting = "some\n";
    run.close_when_opened = true;
    go(marker);
    shell(&server, "timeout 10 sh -c 'until [ -s marker ]; do sleep 0.02; done'");
}
END_TEST

START_TEST(lost_server_is_an_error)
{
    go("kill -9 $PPID; sleep 20");
    ck_assert_int_eq(run.err.code, ERR_CLOSED);
    ck_assert_int_eq(run.exit_status, -1);
}
END_TEST

/* The owner may give up a connection in any step: closed() comes, and nothing is left on the loop. */
START_TEST(close_in_every_phase)
{
    for (int phase = TRANSPORT_RESOLVE; phase <= TRANSPORT_AGENT_START; phase++) {
        again();
        run.close_in_phase = 1U << phase;
        go("sleep 5");
        ck_assert_int_eq(run.closed, 1);
        ck_assert_int_eq((int)run.last_phase, phase);
        ck_assert_msg(!run.err.code && !run.opened, "%s", run.err.text);
    }
}
END_TEST

START_TEST(configuration_is_followed)
{
    shell(&server,
          "{ printf 'Host node\\n HostName 127.0.0.1\\n Port %u\\n User %s\\n IdentityFile %%%%d/../user\\n"
          " HostKeyAlias fancy\\n UserKnownHostsFile %s/known\\n'; } > home/.ssh/config && chmod 600 "
          "home/.ssh/config",
          server.port, server.user, server.dir);
    shell(&server, "{ printf 'fancy '; cat host_ed25519.pub; } > known && : > home/.ssh/known_hosts");
    struct transport_target target = {.host = "node", .command = "exit 13"};
    ck_assert(run_transport(&run, &target));
    ck_assert_msg(run.exit_status == 13, "%s", run.err.text);
}
END_TEST

START_TEST(proxy_needs_ssh)
{
    shell(&server,
          "printf 'Host *\\n ProxyJump gateway\\n' > home/.ssh/config && chmod 600 home/.ssh/config");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_UNSUPPORTED);
    ck_assert_msg(strstr(run.err.text, "proxyjump gateway"), "%s", run.err.text);
}
END_TEST

START_TEST(bad_configuration_is_named)
{
    shell(&server, "printf 'NoSuchWord yes\\n' > home/.ssh/config && chmod 600 home/.ssh/config");
    go("true");
    ck_assert_int_eq(run.err.code, ERR_HOST);
    ck_assert_msg(strstr(run.err.text, "nosuchword"), "%s", run.err.text);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {command_runs,
                                  signal_is_told_from_status,
                                  end_is_seen_while_output_is_held,
                                  unknown_key_is_refused,
                                  changed_key_is_refused,
                                  revoked_key_is_refused,
                                  hashed_entry_is_found,
                                  entry_decides_key_type,
                                  certificate_authority_needs_ssh,
                                  no_key_is_accepted,
                                  host_that_takes_passwords_only,
                                  default_identity_is_tried,
                                  rsa_key_is_accepted_or_needs_ssh,
                                  rsa_key_of_the_agent,
                                  rsa_host_key_is_accepted_or_needs_ssh,
                                  agent_key_is_accepted,
                                  agent_keys_are_named,
                                  locked_agent_does_not_hang,
                                  refused_port_is_named,
                                  unknown_host_is_named,
                                  every_address_is_tried,
                                  not_an_ssh_server,
                                  bulk_both_ways,
                                  bulk_survives_rekeying,
                                  all_output_comes_before_the_end,
                                  close_from_our_side_is_eof_there,
                                  lost_server_is_an_error,
                                  close_in_every_phase,
                                  configuration_is_followed,
                                  proxy_needs_ssh,
                                  bad_configuration_is_named};
    if (!ssh_server_possible())
        return 0;
    Suite *suite = suite_create("ssh transport");
    TCase *tc = tcase_create("sshd");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(tc, tests[i]);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    ssh_server_clean();
    return failed ? 1 : 0;
}
