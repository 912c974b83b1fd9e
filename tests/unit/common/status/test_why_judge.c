/* hvdctl why: what is said of jobs that were put together by hand. */
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "common/status/why_judge.h"
#include "tests/unit/run_test.h"

#define RANKS 4

static struct why_rank rank[RANKS];
static Hvd__Where where[RANKS];
static Hvd__WhereProcess process[RANKS], *processes[RANKS];
static uint8_t culprit[RANKS], arrived[3][RANKS], missing[3][RANKS];
static struct why_operation operation[3];
static const char *silent[1];
static struct why_job job;
static struct why why;

/* Two hosts of two ranks that all sleep in "reduce", of which the engine has told. */
static void set_up(void)
{
    memset(culprit, 0, sizeof culprit);
    memset(arrived, 0, sizeof arrived);
    memset(missing, 0, sizeof missing);
    memset(&why, 0, sizeof why);
    why.culprit = culprit;
    for (uint32_t i = 0; i < RANKS; i++) {
        hvd__where__init(&where[i]);
        hvd__where_process__init(&process[i]);
        processes[i] = &process[i];
        process[i].pid = 100 + i;
        process[i].state = (char *)"sleeping";
        process[i].stack = (char *)"futex < reduce < main";
        where[i].process = &processes[i];
        where[i].n_process = 1;
        rank[i] = (struct why_rank){.rank = i,
                                    .host = i < 2 ? "a" : "b",
                                    .pid = 100 + i,
                                    .state = "sleeping",
                                    .initialized = true,
                                    .where = &where[i]};
    }
    job = (struct why_job){.size = RANKS,
                           .rank = rank,
                           .silent = silent,
                           .operation = operation,
                           .counted = true,
                           .interval_ms = 1000,
                           .has_stacks = true};
}

/* "01" are in it, "23" are not. */
static void add_operation(const char *tensor, uint64_t ms, const char *in, const char *out)
{
    size_t n = job.operations++;
    operation[n] = (struct why_operation){
        .tensor = tensor, .kind = "allreduce", .ms = ms, .arrived = arrived[n], .missing = missing[n]};
    for (; *in; in++, operation[n].here++)
        arrived[n][*in - '0'] = 1;
    for (; *out; out++)
        missing[n][*out - '0'] = 1;
    operation[n].expected = operation[n].here;
    for (uint32_t i = 0; i < RANKS; i++)
        operation[n].expected += missing[n][i];
}

static void expect_why(enum why_verdict verdict, const char *culprits, const char *sentence)
{
    char found[RANKS + 1] = "";
    why_judge(&job, &why);
    for (uint32_t i = 0; i < RANKS; i++)
        if (culprit[i])
            snprintf(found + strlen(found), 2, "%u", i);
    ck_assert_str_eq(why.sentence, sentence);
    ck_assert_str_eq(found, culprits);
    ck_assert_str_eq(why_word(why.verdict), why_word(verdict));
    ck_assert_uint_eq(why.culprits, strlen(culprits));
}

START_TEST(a_rank_that_does_not_come)
{
    set_up();
    add_operation("x", 12345, "013", "2");
    process[2].waits = (char *)"read (pipe_read)";
    expect_why(
        WHY_MISSING, "2",
        "3 ranks wait for 12 s in allreduce \"x\" for rank 2 on b, which waits in read (pipe_read), at "
        "futex < reduce < main");
    set_up();
    add_operation("x", 2000, "013", "2");
    rank[2].use.computes = 0.99;
    expect_why(
        WHY_MISSING, "2",
        "3 ranks wait for 2.0 s in allreduce \"x\" for rank 2 on b, which computes (99 % of a processor), at "
        "futex < reduce < main");
    set_up();
    add_operation("x", 2000, "01", "23");
    rank[3].ended = true;
    rank[3].state = "exit status 0";
    expect_why(
        WHY_MISSING, "23",
        "2 ranks wait for 2.0 s in allreduce \"x\" for ranks 2,3 on b; rank 3 has ended (exit status 0)");
    set_up();
    add_operation("x", 2000, "013", "2");
    rank[2] = (struct why_rank){.rank = 2, .state = "unknown"};
    expect_why(
        WHY_MISSING, "2",
        "3 ranks wait for 2.0 s in allreduce \"x\" for rank 2, which is on a host that has told nothing of "
        "it");
}
END_TEST

START_TEST(a_rank_that_is_stopped)
{
    set_up();
    add_operation("x", 2000, "013", "2");
    rank[2].state = process[2].state = (char *)"stopped";
    expect_why(WHY_STOPPED, "2",
               "3 ranks wait for 2.0 s in allreduce \"x\" for rank 2 on b, which is stopped (pid 102)");
    ck_assert_str_eq(why.remedy, "kill -CONT 102 on b lets it go on");
    set_up(); /* nobody waits yet */
    rank[2].state = process[2].state = (char *)"stopped";
    expect_why(WHY_STOPPED, "2", "rank 2 on b is stopped (pid 102)");
    set_up(); /* below a shell, which sleeps */
    process[2].state = (char *)"stopped";
    process[2].pid = 500;
    process[2].name = (char *)"python3";
    expect_why(WHY_STOPPED, "2", "rank 2 on b has a process python3 (pid 500) that is stopped");
}
END_TEST

START_TEST(another_order)
{
    set_up();
    add_operation("x", 3000, "013", "2");
    add_operation("y", 3000, "2", "013");
    expect_why(
        WHY_ORDER, "2",
        "rank 2 on b is in allreduce \"y\", but ranks 0,1,3 are in allreduce \"x\" for 3.0 s: the ranks call "
        "their operations in different orders");
}
END_TEST

/* 0 and 1 wait for 3, which waits for 2. */
START_TEST(the_end_of_a_chain)
{
    set_up();
    add_operation("x", 3000, "01", "23");
    add_operation("y", 3000, "3", "2");
    expect_why(
        WHY_MISSING, "2",
        "1 rank waits for 3.0 s in allreduce \"y\" for rank 2 on b, which is sleeping, at futex < reduce < "
        "main; 2 more ranks wait behind that");
}
END_TEST

START_TEST(jobs_that_go_on)
{
    set_up();
    job.ended = 10;
    expect_why(
        WHY_HEALTHY, "",
        "the job goes on: 10 operations ended in the last 1.0 s; no rank is much slower than the others, "
        "which "
        "are in operations 0 % of the time");
    set_up();
    job.ended = 10;
    add_operation("x", 3000, "013", "2"); /* a slow rank, in a job of long steps */
    expect_why(
        WHY_HEALTHY, "",
        "the job goes on: 10 operations ended in the last 1.0 s; no rank is much slower than the others, "
        "which "
        "are in operations 0 % of the time");
    set_up(); /* none is slow, one is the slowest */
    job.ended = 10;
    rank[0].in_operations = rank[1].in_operations = rank[3].in_operations = 0.5;
    rank[2].in_operations = 0.4;
    expect_why(
        WHY_HEALTHY, "",
        "the job goes on: 10 operations ended in the last 1.0 s; no rank is much slower than the others, "
        "which are in operations 50 % of the time, rank 2 on b the least: 40 %");
    set_up();
    add_operation("x", 900, "013", "2");
    rank[0].use.computes = rank[2].use.computes = 1;
    expect_why(WHY_WORKING, "", "no rank waits for another in libhvd: 2 of 4 ranks compute");
    set_up(); /* in the kernel at one look */
    job.ended = 1;
    process[1].state = (char *)"uninterruptible";
    expect_why(
        WHY_HEALTHY, "",
        "the job goes on: 1 operation ended in the last 1.0 s; no rank is much slower than the others, "
        "which are "
        "in operations 0 % of the time");
    set_up();
    process[1].state = (char *)"uninterruptible";
    expect_why(WHY_UNKNOWN, "", "no rank waits for another in libhvd: 0 of 4 ranks compute");
}
END_TEST

START_TEST(ranks_that_have_not_begun)
{
    set_up();
    rank[2].initialized = false;
    process[2].waits = (char *)"read (pipe_read)";
    expect_why(
        WHY_STARTING, "2",
        "3 of 4 ranks wait in hvd_init for rank 2 on b; rank 2 has not called hvd_init; it waits in read "
        "(pipe_read), at futex < reduce < main");
}
END_TEST

START_TEST(ranks_that_get_no_processor)
{
    set_up();
    add_operation("x", 3000, "013", "2");
    rank[2].use = (struct why_use){.computes = 0.3, .delayed = 0.6, .nice = 19};
    process[2].state = (char *)"running";
    expect_why(
        WHY_MISSING, "2",
        "3 ranks wait for 3.0 s in allreduce \"x\" for rank 2 on b, which runs at nice 19 and waits for "
        "a processor 60 % of the time, at futex < reduce < main");
    set_up();
    add_operation("x", 3000, "013", "2");
    rank[2].use = (struct why_use){.computes = 0.7, .delayed = 0.25};
    expect_why(WHY_MISSING, "2",
               "3 ranks wait for 3.0 s in allreduce \"x\" for rank 2 on b, which computes (70 % of a "
               "processor), is ready and has no processor 25 % of the time, at futex < reduce < main");
    set_up();
    add_operation("x", 3000, "013", "2");
    rank[2].use = (struct why_use){.computes = 0.9, .hot = 2};
    expect_why(WHY_MISSING, "2",
               "3 ranks wait for 3.0 s in allreduce \"x\" for rank 2 on b, which computes (90 % of a "
               "processor), while its host's processors are too hot and slower than usual 100 % of the time, "
               "at futex < reduce < main");
}
END_TEST

START_TEST(ranks_that_are_slow)
{
    static const struct {
        struct why_use use;
        const char *reason;
    } cases[] = {
        {{.computes = 0.97, .delayed = 0.02, .throttled = 0.01, .resent = 100, .nice = 19, .weight = 1},
         "it computes (97 % of a processor)"},
        {{.computes = 0.97, .hot = 0.376, .heats = 2, .frequency = 10},
         "it computes (97 % of a processor), and its host's processors are too hot and slower than usual 38 "
         "% "
         "of the time"},
        {{.computes = 0.97, .heats = 0.1},
         "it computes (97 % of a processor), and its host's processors are too hot and make themselves "
         "slower"},
        {{.computes = 0.97, .hot = 0.001, .heats = 0.1, .frequency = 51},
         "it computes (97 % of a processor)"},
        {{.computes = 0.97, .frequency = 22},
         "it computes (97 % of a processor), and its processor has 22 % of its highest frequency"},
        {{.delayed = 0.3, .hot = 0.376, .nice = 19},
         "it runs at nice 19 and waits for a processor 30 % of the time, and its host's processors are too "
         "hot "
         "and slower than usual 38 % of the time"},
        {{.computes = 0.97, .gpu_slowed = 0xe8},
         "it computes (97 % of a processor), and its GPU makes itself slower (heat, power brake)"},
        {{.computes = 0.1, .gpu_slowed = 0x0c, .frequency = 9},
         "its GPU makes itself slower (power cap, hardware)"},
        {{.computes = 0.5, .delayed = 0.45}, "it is ready and has no processor 45 % of the time"},
        {{.computes = 0.1, .delayed = 0.01, .resent = 0.5},
         "it waits for something else (10 % of a processor)"},
        {{.computes = 0.1, .delayed = 0.01, .resent = 70},
         "its host's links lose packets (70 a second are sent again)"},
        {{.computes = 0.1, .delayed = 0.01, .resent = 0.5, .lost_to = 40},
         "links of the job lose packets (another host sends 40 a second again)"},
        {{.computes = 0.3, .delayed = 0.6, .throttled = 0.62},
         "a limit of its cgroup (cpu.max) holds it back 62 % of the time"},
        {{.computes = 0.3, .delayed = 0.6, .nice = 19},
         "it runs at nice 19 and waits for a processor 60 % of the time"},
        {{.computes = 0.3, .delayed = 1.6, .nice = 3, .policy = SCHED_IDLE, .weight = 2},
         "it runs under SCHED_IDLE and waits for a processor 100 % of the time"},
        {{.computes = 0.3, .delayed = 0.6, .policy = SCHED_BATCH},
         "it runs under SCHED_BATCH and waits for a processor 60 % of the time"},
        {{.computes = 0.3, .delayed = 0.6, .weight = 1},
         "it has 1 % of the usual weight by its cgroup (cpu.weight or cpu.shares) and waits for a processor "
         "60 "
         "% of the time"},
        {{.computes = 0.3, .delayed = 0.6, .nice = -5, .weight = 51},
         "it is ready and has no processor 60 % of the time"},
        {{.computes = 2, .delayed = 0.6, .throttled = 3.1},
         "a limit of its cgroup (cpu.max) holds it back 100 % of the time"},
    };
    char expected[400];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_up();
        job.ended = 50;
        for (int k = 0; k < RANKS; k++)
            rank[k].in_operations = k == 2 ? 0.05 : 0.6;
        rank[2].use = cases[i].use;
        snprintf(expected, sizeof expected,
                 "the job goes on: 50 operations ended in the last 1.0 s; the others wait for rank 2 on b: "
                 "rank 2 is "
                 "in operations 5 %% of the time, the rank in the middle 60 %%; %s",
                 cases[i].reason);
        expect_why(WHY_HEALTHY, "", expected);
    }
}
END_TEST

START_TEST(hosts_that_are_slow)
{
    set_up(); /* a whole host */
    job.ended = 50;
    for (int k = 0; k < RANKS; k++)
        rank[k].in_operations = k >= 2 ? 0.05 * k : 0.6;
    why_judge(&job, &why);
    ck_assert_ptr_nonnull(
        strstr(why.sentence, "the others wait for ranks 2,3 on b: rank 2 is in operations 10 %"));
    set_up(); /* hardly any time in operations */
    job.ended = 50;
    rank[0].in_operations = 0.1;
    why_judge(&job, &why);
    ck_assert_ptr_null(strstr(why.sentence, "the others wait"));
}
END_TEST

START_TEST(hosts_and_links)
{
    set_up();
    silent[0] = "b";
    job.silents = 1;
    add_operation("x", 3000, "01", "23");
    expect_why(WHY_SILENT_HOST, "23", "host b does not answer: it is cut off, or its session is stopped");
    set_up();
    add_operation("x", 3000, "0123", "");
    job.bytes = 2500000;
    expect_why(
        WHY_MOVING, "",
        "all 4 ranks are in allreduce \"x\" for 3.0 s; 2.5 MB went between hosts in the last 1.0 s: the "
        "operation is under way");
}
END_TEST

START_TEST(the_kernel)
{
    set_up();
    job.counted = false;
    rank[1].state = process[1].state = (char *)"uninterruptible";
    process[1].waits = (char *)"read (folio_wait_bit) of /data/x";
    expect_why(WHY_KERNEL, "1",
               "rank 1 on a waits in the kernel in read (folio_wait_bit) of /data/x (pid 101)");
    ck_assert_ptr_nonnull(strstr(why.remedy, "file system or device on a"));
}
END_TEST

START_TEST(programs_without_libhvd)
{
    set_up();
    job.counted = false;
    for (int i = 0; i < RANKS; i++)
        process[i].stack = (char *)"poll < opal_progress < ompi_request_wait < PMPI_Allreduce < step < main";
    expect_why(WHY_UNKNOWN, "",
               "all 4 ranks are in PMPI_Allreduce: the stacks do not say for whom they wait");
    set_up();
    job.counted = false;
    for (int i = 0; i < RANKS; i++)
        process[i].stack = (char *)(i == 3 ? "fread < load < main" : "poll < PMPI_Allreduce < main");
    rank[3].use.computes = 0.6;
    expect_why(
        WHY_ELSEWHERE, "3",
        "3 ranks are in PMPI_Allreduce, and rank 3 on b is not: rank 3 computes (60 % of a processor), at "
        "fread < load < main");
    ck_assert(why.guess);
    set_up();
    job.counted = false;
    for (int i = 0; i < RANKS; i++)
        process[i].stack = (char *)(i == 3 ? "poll < PMPI_Barrier < main" : "poll < PMPI_Allreduce < main");
    expect_why(WHY_ELSEWHERE, "3",
               "rank 3 on b is in PMPI_Barrier, and the other 3 ranks are in PMPI_Allreduce");
}
END_TEST

/* Without libhvd, and with no call of a known library on the stacks. */
static void set_up_plain(const char *waits)
{
    set_up();
    job.counted = false;
    for (uint32_t i = 0; i < RANKS; i++)
        process[i].waits = (char *)(uintptr_t)waits;
}

START_TEST(plain_programs)
{
    static char socket[] = "recvfrom (sk_wait_data) of a connection to 10.0.0.2:4000";
    set_up_plain(socket);
    process[2].waits = (char *)"";
    process[2].state = (char *)"running";
    process[2].stack = (char *)"load < main";
    rank[2].use.computes = 0.9;
    expect_why(
        WHY_ELSEWHERE, "2",
        "3 ranks wait in recvfrom of a connection, and rank 2 on b does not: rank 2 computes (90 % of a "
        "processor), at load < main");
    ck_assert(why.guess);
    set_up_plain(socket);
    process[1].waits = process[3].waits = (char *)"clock_nanosleep";
    expect_why(
        WHY_ELSEWHERE, "13",
        "2 ranks wait in recvfrom of a connection, and ranks 1,3 do not: rank 1 waits in clock_nanosleep, "
        "at futex < reduce < main");
    set_up_plain(socket);
    rank[0].ended = true;
    rank[0].state = "exit status 0";
    expect_why(WHY_ENDED, "0",
               "3 ranks wait in recvfrom of a connection, and rank 0 on a does not: rank 0 has ended (exit "
               "status 0)");
}
END_TEST

START_TEST(plain_programs_that_go_on)
{
    static const char unseen[] = "no reason is seen from outside: ";
    char sentence[100];
    set_up_plain("recvfrom (sk_wait_data)");
    snprintf(sentence, sizeof sentence, "%s0 of 4 ranks compute", unseen);
    expect_why(WHY_UNKNOWN, "", sentence);
    set_up_plain("");
    for (uint32_t i = 0; i < RANKS; i++)
        rank[i].use.computes = 1;
    process[1].waits = (char *)"recvfrom"; /* perhaps for a moment */
    rank[1].use.computes = 0;
    snprintf(sentence, sizeof sentence, "%s3 of 4 ranks compute", unseen);
    expect_why(WHY_UNKNOWN, "", sentence);
    set_up_plain("clock_nanosleep"); /* ranks that have nothing to do with each other */
    rank[0].ended = true;
    snprintf(sentence, sizeof sentence, "%s0 of 3 ranks compute; rank 0 on a has ended", unseen);
    expect_why(WHY_UNKNOWN, "", sentence);
}
END_TEST

START_TEST(plain_programs_with_locks)
{
    set_up_plain("clock_nanosleep");
    process[0].waits = (char *)"flock of /x, locked by b (pid 101)";
    process[0].holder = 101;
    process[1].waits = (char *)"read (pipe_read) of a pipe from c (pid 7)";
    process[1].holder = 7; /* no rank */
    expect_why(WHY_ELSEWHERE, "1",
               "rank 0 waits in flock of /x, locked by b (pid 101); that is rank 1 on a, which waits in read "
               "(pipe_read) of a pipe from c (pid 7), at futex < reduce < main");
    set_up_plain("clock_nanosleep");
    process[0].waits = (char *)"flock of /x, locked by b (pid 101)";
    process[0].holder = 101;
    process[1].waits = (char *)"flock of /y, locked by a (pid 100)";
    process[1].holder = 100;
    job.has_stacks = false;
    process[0].stack = process[1].stack = (char *)"";
    expect_why(
        WHY_ORDER, "1",
        "ranks wait for each other in a circle: rank 1 on a waits in flock of /y, locked by a (pid 100)");
    set_up_plain("clock_nanosleep");
    process[0].waits = (char *)"flock of /x, locked by vi (pid 102)";
    process[0].holder = 102; /* a rank of the other host has that number */
    expect_why(WHY_ELSEWHERE, "0",
               "3 ranks wait in clock_nanosleep, and rank 0 on a does not: rank 0 waits in flock of /x, "
               "locked by vi "
               "(pid 102), at futex < reduce < main");
}
END_TEST

/* The calls differ, and one rank is in none; then all main threads wait in one call, and a thread tells. */
START_TEST(calls_that_differ)
{
    static const char *const stack[] = {"poll < PMPI_Recv < main", "poll < PMPI_Reduce < main",
                                        "poll < PMPI_Bcast < main", "work < main"};
    set_up_plain("");
    for (int i = 0; i < RANKS; i++)
        process[i].stack = (char *)(uintptr_t)stack[i];
    expect_why(WHY_ELSEWHERE, "3",
               "3 ranks are in calls such as PMPI_Bcast, and rank 3 on b is in none: rank 3 is sleeping, at "
               "work < main");
    ck_assert(why.guess);
    set_up_plain("futex");
    for (int i = 0; i < RANKS; i++)
        process[i].stack =
            (char *)(i == 3
                         ? "wait < c10d::Work::wait < main\npoll < gloo::transport::tcp::waitRecv < "
                           "gloo::broadcast < run"
                         : "wait < c10d::Work::wait < main\npoll < gloo::transport::tcp::Loop::run < loop");
    expect_why(WHY_ELSEWHERE, "3",
               "rank 3 on b has a thread in gloo::broadcast, and the other 3 ranks have none");
    for (int i = 0; i < RANKS; i++) {
        process[i].connections = 2;
        process[i].received_ms = 4000 + 100 * (uint32_t)i;
        process[i].sent_ms = 5000;
        process[i].stack = (char *)"poll < PMPI_Barrier < main";
    }
    memset(culprit, 0, sizeof culprit);
    why = (struct why){.culprit = culprit};
    expect_why(WHY_UNKNOWN, "",
               "all 4 ranks are in PMPI_Barrier: the stacks do not say for whom they wait; their connections "
               "have been "
               "quiet for 4.0 s");
}
END_TEST

/* Data goes over the connections of all: calls say little then, and a rank in the kernel even less. */
START_TEST(jobs_that_move_data)
{
    set_up_plain("clock_nanosleep");
    for (int i = 0; i < RANKS; i++) {
        process[i].connections = 1;
        process[i].received_ms = 300;
        process[i].sent_ms = 2000;
    }
    rank[2].use.computes = 0.9;
    process[2].waits = (char *)"";
    rank[1].state = process[1].state = (char *)"uninterruptible";
    expect_why(WHY_HEALTHY, "",
               "the ranks seem to go on: a moment ago data went over the connections of each of them");
    process[3].stack = (char *)"poll < PMPI_Bcast < main";
    process[0].stack = process[1].stack = process[3].stack;
    process[2].stack = (char *)"work < main";
    expect_why(
        WHY_HEALTHY, "",
        "the ranks seem to go on, since data goes over their connections; at this moment 3 ranks are in "
        "PMPI_Bcast, and rank 2 on b is not: rank 2 computes (90 % of a processor), at work < main");
    for (int i = 0; i < RANKS; i++)
        process[i].stack = (char *)"";
    process[0].received_ms = 3000;
    process[0].sent_ms = 3000;
    memset(culprit, 0, sizeof culprit);
    why = (struct why){.culprit = culprit};
    job.has_stacks = true;
    expect_why(WHY_KERNEL, "1", "rank 1 on a waits in the kernel in clock_nanosleep (pid 101)");
    ck_assert(why.guess);
}
END_TEST

START_TEST(words_for_ranks)
{
    set_up_plain("recvfrom of a connection to 10.0.0.2:1");
    process[1].waits = (char *)"futex";
    process[1].swapped_kib = 1500000;
    process[1].stack =
        (char *)"futex < ? in python3.11 < _PyEval_EvalFrameDefault < train < run_mod < main < "
                "__libc_start_call_main < _start";
    expect_why(WHY_ELSEWHERE, "1",
               "3 ranks wait in recvfrom of a connection, and rank 1 on a does not: rank 1 waits in futex, "
               "with 1.5 GB of "
               "its memory swapped out, at futex < train < main");
    memset(culprit, 0, sizeof culprit);
    why = (struct why){.culprit = culprit};
    process[1].swapped_kib = 0;
    rank[1].use.computes = 0.98;
    expect_why(WHY_ELSEWHERE, "1",
               "3 ranks wait in recvfrom of a connection, and rank 1 on a does not: rank 1 computes (98 % of "
               "a processor) "
               "beside its main thread, which waits in futex, at futex < train < main");
}
END_TEST

START_TEST(calls_in_stacks)
{
    char call[32];
    why_call_of("poll < MPIR_Wait < PMPI_Recv < exchange < main\n2 threads: nccl < x", call, sizeof call);
    ck_assert_str_eq(call, "PMPI_Recv");
    why_call_of("a < gloo::allreduce < main", call, sizeof call);
    ck_assert_str_eq(call, "gloo::allreduce");
    why_call_of("read < main", call, sizeof call);
    ck_assert_str_eq(call, "");
    why_call_of("", call, sizeof call);
    ck_assert_str_eq(call, "");
    why_call_of("MPI_A_function_with_a_name_that_is_longer_than_the_room", call, sizeof call);
    ck_assert_uint_eq(strlen(call), sizeof call - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("why_judge");
    TCase *t = tcase_create("jobs");
    tcase_add_test(t, a_rank_that_does_not_come);
    tcase_add_test(t, a_rank_that_is_stopped);
    tcase_add_test(t, another_order);
    tcase_add_test(t, the_end_of_a_chain);
    tcase_add_test(t, jobs_that_go_on);
    tcase_add_test(t, ranks_that_have_not_begun);
    tcase_add_test(t, ranks_that_get_no_processor);
    tcase_add_test(t, ranks_that_are_slow);
    tcase_add_test(t, hosts_that_are_slow);
    tcase_add_test(t, hosts_and_links);
    tcase_add_test(t, the_kernel);
    tcase_add_test(t, programs_without_libhvd);
    tcase_add_test(t, plain_programs);
    tcase_add_test(t, plain_programs_that_go_on);
    tcase_add_test(t, plain_programs_with_locks);
    tcase_add_test(t, calls_that_differ);
    tcase_add_test(t, jobs_that_move_data);
    tcase_add_test(t, words_for_ranks);
    tcase_add_test(t, calls_in_stacks);
    suite_add_tcase(suite, t);
    return run_suite(suite);
}
