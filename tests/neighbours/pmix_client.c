/* pmix_client MODE: what a rank does with PMIx itself, one mode for each call of the interface. Every rank
 * prints "RANK/SIZE good", or what was wrong and where. */
#include <pmix.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pmix_proc_t me;
static uint32_t size;
static char **arguments; /* behind the mode, NULL at the end */

#define MUST(what)                                                                                           \
    do {                                                                                                     \
        if (!(what)) {                                                                                       \
            printf("%u/%u line %d: %s\n", me.rank, size, __LINE__, #what);                                   \
            fflush(stdout);                                                                                  \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define STATUS(wanted, call)                                                                                 \
    do {                                                                                                     \
        pmix_status_t got_ = (call);                                                                         \
        if (got_ != (wanted)) {                                                                              \
            printf("%u/%u line %d: %s is %s\n", me.rank, size, __LINE__, #call, PMIx_Error_string(got_));    \
            fflush(stdout);                                                                                  \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static pmix_proc_t proc_of(pmix_rank_t rank)
{
    pmix_proc_t p;
    PMIX_LOAD_PROCID(&p, me.nspace, rank);
    return p;
}

static pmix_status_t put_text(const char *key, const char *text)
{
    pmix_value_t v;
    PMIX_VALUE_LOAD(&v, text, PMIX_STRING);
    pmix_status_t rc = PMIx_Put(PMIX_GLOBAL, key, &v);
    PMIX_VALUE_DESTRUCT(&v);
    return rc;
}

/* The value of a key is this text? */
static bool has_text(pmix_rank_t rank, const char *key, const char *wanted)
{
    pmix_proc_t p = proc_of(rank);
    pmix_value_t *v = NULL;
    pmix_status_t rc = PMIx_Get(&p, key, NULL, 0, &v);
    bool good = rc == PMIX_SUCCESS && v->type == PMIX_STRING && strcmp(v->data.string, wanted) == 0;
    if (!good)
        printf("%u/%u: %s of %u: %s\n", me.rank, size, key, rank, PMIx_Error_string(rc));
    if (v)
        PMIX_VALUE_RELEASE(v);
    return good;
}

static pmix_status_t fence(const pmix_rank_t *rank, size_t count, bool collect, int seconds)
{
    pmix_proc_t p[64];
    pmix_info_t info[2];
    size_t infos = 0;
    for (size_t i = 0; i < count; i++)
        p[i] = proc_of(rank[i]);
    if (collect)
        PMIX_INFO_LOAD(&info[infos++], PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    if (seconds)
        PMIX_INFO_LOAD(&info[infos++], PMIX_TIMEOUT, &seconds, PMIX_INT);
    return PMIx_Fence(count ? p : NULL, count, infos ? info : NULL, infos);
}

static void good(void)
{
    printf("%u/%u good\n", me.rank, size);
    fflush(stdout);
}

/* ---- keys of the job, the node and the ranks ----------------------------------------------------------- */

static void mode_keys(void)
{
    static const char *const numbers[] = {PMIX_LOCAL_RANK, PMIX_NODE_RANK, PMIX_NODEID,
                                          PMIX_LOCAL_SIZE, PMIX_UNIV_SIZE, PMIX_MAX_PROCS};
    pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
    pmix_value_t *v = NULL;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool of_job = i >= 3;
        pmix_status_t rc = PMIx_Get(of_job ? &all : &me, numbers[i], NULL, 0, &v);
        if (rc != PMIX_SUCCESS)
            printf("%u/%u: %s: %s\n", me.rank, size, numbers[i], PMIx_Error_string(rc));
        MUST(rc == PMIX_SUCCESS);
        PMIX_VALUE_RELEASE(v);
    }
    for (uint32_t r = 0; r < size; r++) {
        pmix_proc_t p = proc_of(r);
        STATUS(PMIX_SUCCESS, PMIx_Get(&p, PMIX_HOSTNAME, NULL, 0, &v));
        MUST(v->type == PMIX_STRING && v->data.string[0]);
        PMIX_VALUE_RELEASE(v);
    }
    STATUS(PMIX_SUCCESS, PMIx_Get(&all, PMIX_LOCAL_PEERS, NULL, 0, &v));
    MUST(v->type == PMIX_STRING && v->data.string[0]);
    PMIX_VALUE_RELEASE(v);
    good();
}

static bool has_number(pmix_rank_t rank, const char *key, uint32_t wanted, uint32_t of_program)
{
    pmix_proc_t p = proc_of(rank);
    pmix_info_t info[2];
    pmix_value_t *v = NULL;
    bool yes = true, program = of_program != UINT32_MAX;
    PMIX_INFO_LOAD(&info[0], PMIX_APP_INFO, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_APPNUM, &of_program, PMIX_UINT32);
    pmix_status_t rc = PMIx_Get(&p, key, program ? info : NULL, program ? 2 : 0, &v);
    bool right = rc == PMIX_SUCCESS && v->data.uint32 == wanted;
    if (!right)
        printf("%u/%u: %s of %u, program %d: %s, %d\n", me.rank, size, key, rank, (int)of_program,
               PMIx_Error_string(rc), rc == PMIX_SUCCESS ? (int)v->data.uint32 : -1);
    if (v)
        PMIX_VALUE_RELEASE(v);
    return right;
}

/* The arguments are the sizes of the programs. */
static void mode_programs(void)
{
    uint32_t first = 0, i = 0;
    pmix_value_t *v = NULL;
    for (; arguments[i]; i++) {
        uint32_t ranks = (uint32_t)strtoul(arguments[i], NULL, 10);
        MUST(has_number(PMIX_RANK_WILDCARD, PMIX_APP_SIZE, ranks, i));
        MUST(has_number(PMIX_RANK_WILDCARD, PMIX_APPLDR, first, i));
        for (uint32_t r = first; r < first + ranks; r++) {
            pmix_proc_t p = proc_of(r);
            MUST(has_number(r, PMIX_APPNUM, i, UINT32_MAX));
            MUST(has_number(r, PMIX_APP_RANK, r - first, UINT32_MAX));
            STATUS(PMIX_SUCCESS, PMIx_Get(&p, PMIX_HOSTNAME, NULL, 0, &v));
            PMIX_VALUE_RELEASE(v);
        }
        first += ranks;
    }
    MUST(first == size);
    MUST(has_number(PMIX_RANK_WILDCARD, PMIX_JOB_NUM_APPS, i, UINT32_MAX));
    mode_keys();
}

/* ---- put, fence, get ----------------------------------------------------------------------------------- */

static void mode_fence(void)
{
    char text[64];
    for (int round = 0; round < 3; round++) {
        char key[32];
        snprintf(key, sizeof key, "round-%d", round);
        snprintf(text, sizeof text, "%d of %u", round, me.rank);
        STATUS(PMIX_SUCCESS, put_text(key, text));
        STATUS(PMIX_SUCCESS, PMIx_Commit());
        STATUS(PMIX_SUCCESS, fence(NULL, 0, true, 0));
        for (uint32_t r = 0; r < size; r++) {
            snprintf(text, sizeof text, "%d of %u", round, r);
            MUST(has_text(r, key, text));
        }
    }
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

/* The even ones and the odd ones by themselves, all at once and several times. */
static void mode_subsets(void)
{
    pmix_rank_t mine[64];
    size_t count = 0;
    for (uint32_t r = me.rank % 2; r < size; r += 2)
        mine[count++] = r;
    for (uint32_t i = 0; i < 5 + 3 * (me.rank % 2); i++)
        STATUS(PMIX_SUCCESS, fence(mine, count, false, 0));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

/* The last rank comes too late. */
static void mode_timeout(void)
{
    double began = now();
    if (me.rank + 1 < size) {
        STATUS(PMIX_ERR_TIMEOUT, fence(NULL, 0, false, 1));
        MUST(now() - began > 0.9 && now() - began < 3);
        sleep(1); /* so that nobody's end is what ends the others' fence */
    } else {
        sleep(2);
    }
    good();
}

/* Rank 0 alone has a time-out, and it ends the fence on the other hosts too, also for who comes later. */
static void mode_timeout_of_one(void)
{
    pmix_status_t rc;
    double began = now();
    if (me.rank + 1 == size)
        sleep(2);
    rc = fence(NULL, 0, false, me.rank < size / 2 ? 1 : 30);
    MUST(rc == PMIX_ERR_TIMEOUT);
    MUST(now() - began > 0.9 && now() - began < 5);
    good();
}

/* Until somebody ends them. */
static void mode_wait(void)
{
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    printf("# rank %u waits\n", me.rank);
    sleep(30);
    good();
}

/* Version 5 of the library tells one rank of a host, and the others success: there, that the fence ends is
 * what counts. */
static bool is_told_of_failure(pmix_status_t rc)
{
    return PMIX_VERSION_MAJOR >= 5 || rc != PMIX_SUCCESS;
}

/* The links between hosts break while the first half waits for the second, which comes not. */
static void mode_lost_links(void)
{
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    printf("# rank %u waits\n", me.rank);
    if (me.rank >= size / 2)
        sleep(3);
    else
        MUST(is_told_of_failure(fence(NULL, 0, false, 0)));
    good();
}

/* Without a fence: asked of the owner, who puts it later than it is asked for. */
static void mode_modex(void)
{
    char text[64];
    uint32_t other = (me.rank + size / 2) % size;
    usleep(200000 * (me.rank % 2));
    snprintf(text, sizeof text, "direct %u", me.rank);
    STATUS(PMIX_SUCCESS, put_text("direct", text));
    STATUS(PMIX_SUCCESS, PMIx_Commit());
    snprintf(text, sizeof text, "direct %u", other);
    MUST(has_text(other, "direct", text));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

/* Keys and ranks that do not exist. */
static void mode_missing(void)
{
    pmix_proc_t p = proc_of((me.rank + size / 2) % size);
    pmix_value_t *v = NULL;
    pmix_info_t info[1];
    int second = 1;
    PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &second, PMIX_INT);
    double began = now();
    MUST(PMIx_Get(&p, "no such key", info, 1, &v) != PMIX_SUCCESS);
    printf("# %.1f s\n", now() - began);
    p = proc_of(size + 7);
    MUST(PMIx_Get(&p, "no such key", info, 1, &v) != PMIX_SUCCESS);
    printf("# %.1f s\n", now() - began);
    pmix_proc_t stranger;
    PMIX_LOAD_PROCID(&stranger, "another job", 0);
    MUST(PMIx_Get(&stranger, "no such key", info, 1, &v) != PMIX_SUCCESS);
    printf("# %.1f s\n", now() - began);
    MUST(PMIx_Fence(&stranger, 1, info, 1) != PMIX_SUCCESS);
    MUST(now() - began < 8);
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

static void mode_large(void)
{
    char key[32];
    size_t bytes = 1 << 20;
    char *text = malloc(bytes + 1);
    MUST(text);
    memset(text, 'a' + (int)(me.rank % 26), bytes);
    text[bytes] = '\0';
    STATUS(PMIX_SUCCESS, put_text("large", text));
    for (int i = 0; me.rank == 0 && i < 10000; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        STATUS(PMIX_SUCCESS, put_text(key, key));
    }
    STATUS(PMIX_SUCCESS, PMIx_Commit());
    STATUS(PMIX_SUCCESS, fence(NULL, 0, true, 0));
    uint32_t other = (me.rank + size - 1) % size;
    memset(text, 'a' + (int)(other % 26), bytes);
    MUST(has_text(other, "large", text));
    MUST(has_text(0, "key-0", "key-0") && has_text(0, "key-9999", "key-9999"));
    free(text);
    good();
}

/* ---- publish, lookup, unpublish ------------------------------------------------------------------------ */

static pmix_status_t publish(const char *key, const char *text, pmix_persistence_t persist)
{
    pmix_info_t info[2];
    PMIX_INFO_LOAD(&info[0], key, text, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_PERSISTENCE, &persist, PMIX_PERSIST);
    return PMIx_Publish(info, 2);
}

static pmix_status_t lookup(const char *key, char *text, bool wait, int seconds)
{
    pmix_pdata_t data[1];
    pmix_info_t info[2];
    int zero = 0;
    size_t infos = 0;
    PMIX_PDATA_CONSTRUCT(&data[0]);
    PMIX_LOAD_KEY(data[0].key, key);
    if (wait)
        PMIX_INFO_LOAD(&info[infos++], PMIX_WAIT, &zero, PMIX_INT);
    if (seconds)
        PMIX_INFO_LOAD(&info[infos++], PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t rc = PMIx_Lookup(data, 1, infos ? info : NULL, infos);
    if (rc == PMIX_SUCCESS && data[0].value.type == PMIX_STRING)
        snprintf(text, 64, "%s", data[0].value.data.string);
    PMIX_PDATA_DESTRUCT(&data[0]);
    return rc;
}

static void mode_publish(void)
{
    char key[32], text[64] = "", wanted[64];
    uint32_t other = (me.rank + 1) % size;
    if (me.rank == 0)
        usleep(300000); /* so the rank that looks up its key has to wait */
    snprintf(key, sizeof key, "port of %u", me.rank);
    snprintf(wanted, sizeof wanted, "value of %u", me.rank);
    STATUS(PMIX_SUCCESS, publish(key, wanted, PMIX_PERSIST_APP));
    MUST(publish(key, wanted, PMIX_PERSIST_APP) != PMIX_SUCCESS);
    snprintf(key, sizeof key, "port of %u", other);
    snprintf(wanted, sizeof wanted, "value of %u", other);
    STATUS(PMIX_SUCCESS, lookup(key, text, true, 10));
    MUST(strcmp(text, wanted) == 0);
    STATUS(PMIX_ERR_NOT_FOUND, lookup("nobody's", text, false, 0));
    double began = now();
    STATUS(PMIX_ERR_TIMEOUT, lookup("nobody's", text, true, 1));
    MUST(now() - began > 0.9 && now() - began < 4);
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    snprintf(key, sizeof key, "port of %u", me.rank);
    char *keys[2] = {key, NULL};
    STATUS(PMIX_SUCCESS, PMIx_Unpublish(keys, NULL, 0));
    STATUS(PMIX_ERR_NOT_FOUND, lookup(key, text, false, 0));
    if (me.rank == 0)
        STATUS(PMIX_SUCCESS, publish("once", "read", PMIX_PERSIST_FIRST_READ));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    if (me.rank == size - 1) {
        STATUS(PMIX_SUCCESS, lookup("once", text, false, 0));
        STATUS(PMIX_ERR_NOT_FOUND, lookup("once", text, false, 0));
    }
    good();
}

/* ---- events -------------------------------------------------------------------------------------------- */

static volatile int told;
static volatile pmix_rank_t told_of;
static volatile bool registered;

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[],
                     size_t infos, pmix_info_t results[], size_t nresults,
                     pmix_event_notification_cbfunc_fn_t done, void *ctx)
{
    (void)id, (void)status, (void)info, (void)infos, (void)results, (void)nresults;
    told_of = source->rank;
    for (size_t i = 0; i < infos; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC))
            told_of = info[i].value.data.proc->rank;
    told++;
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, ctx);
}

static void on_registered(pmix_status_t status, size_t id, void *ctx)
{
    (void)id, (void)ctx;
    registered = status == PMIX_SUCCESS;
}

static bool listen_to(pmix_status_t code)
{
    PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, on_registered, NULL);
    for (int i = 0; i < 200 && !registered; i++)
        usleep(10000);
    return registered;
}

static bool hears(void)
{
    for (int i = 0; i < 500 && !told; i++)
        usleep(10000);
    return told > 0;
}

static void mode_event(void)
{
    MUST(listen_to(PMIX_EXTERNAL_ERR_BASE - 7));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    if (me.rank == 1)
        STATUS(PMIX_SUCCESS,
               PMIx_Notify_event(PMIX_EXTERNAL_ERR_BASE - 7, &me, PMIX_RANGE_GLOBAL, NULL, 0, NULL, NULL));
    if (me.rank != 1)
        MUST(hears() && told_of == 1);
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

/* With --on-failure notify: the last rank dies; the others hear of it. */
static void mode_death(void)
{
    MUST(listen_to(PMIX_ERR_PROC_ABORTED));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    if (me.rank == size - 1)
        raise(SIGKILL);
    MUST(hears() && told_of == size - 1);
    good();
}

/* Likewise, while the others wait for it in a fence, which must end. */
static void mode_dead_fence(void)
{
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    if (me.rank == size - 1) {
        usleep(300000);
        raise(SIGKILL);
    }
    double began = now();
    pmix_status_t rc = fence(NULL, 0, false, 0);
#if PMIX_VERSION_MAJOR <                                                                                     \
    5 /* version 5 tells one rank of each host only: that the fence ends is what counts */
    MUST(rc != PMIX_SUCCESS);
#endif
    printf("# rank %u: %s, %.0f ms after the death\n", me.rank, PMIx_Error_string(rc),
           (now() - began - 0.3) * 1e3);
    MUST(now() - began < 1.2);
    /* And one that begins when it is long dead: it ends, too. (On one host the library does without the
     * dead.)
     */
    usleep(300000);
    began = now();
    (void)fence(NULL, 0, false, 0);
    MUST(now() - began < 1.2);
    good();
}

/* The last rank ends before PMIx_Init while others wait for it, the first before anybody has come. */
static void leave_early(const char *mode)
{
    const char *rank = getenv("PMIX_RANK"), *ranks = getenv("HVD_SIZE");
    bool last = rank && ranks && strtol(rank, NULL, 10) + 1 == strtol(ranks, NULL, 10);
    bool first = rank && strcmp(rank, "0") == 0;
    if (mode && strcmp(mode, "dead_before") == 0 && last) {
        usleep(700000);
        raise(SIGKILL);
    }
    if (mode && strcmp(mode, "dead_before") == 0 && first)
        raise(SIGKILL);
}

static void mode_dead_before(void)
{
    double began = now();
    pmix_status_t rc = fence(NULL, 0, false, 0);
    MUST(rc != PMIX_SUCCESS);
    printf("# rank %u: %s\n", me.rank, PMIx_Error_string(rc));
    MUST(now() - began < 2);
    good();
}

/* ---- query, group, connect, job control, spawn --------------------------------------------------------- */

static void mode_query(void)
{
    pmix_status_t rc;
    pmix_query_t q[1];
    pmix_info_t *answer = NULL;
    size_t answers = 0;
    PMIX_QUERY_CONSTRUCT(&q[0]);
    PMIX_ARGV_APPEND(rc, q[0].keys, PMIX_QUERY_NAMESPACES);
    STATUS(PMIX_SUCCESS, PMIx_Query_info(q, 1, &answer, &answers));
    MUST(answers == 1 && strstr(answer[0].value.data.string, me.nspace));
    PMIX_QUERY_DESTRUCT(&q[0]);
    PMIX_QUERY_CONSTRUCT(&q[0]);
    PMIX_ARGV_APPEND(rc, q[0].keys, PMIX_QUERY_PROC_TABLE);
    PMIX_QUERY_QUALIFIERS_CREATE(&q[0], 1);
    PMIX_INFO_LOAD(&q[0].qualifiers[0], PMIX_NSPACE, me.nspace, PMIX_STRING);
    STATUS(PMIX_SUCCESS, PMIx_Query_info(q, 1, &answer, &answers));
    MUST(answers == 1 && answer[0].value.type == PMIX_DATA_ARRAY);
    MUST(answer[0].value.data.darray->size == size);
    good();
}

static void mode_group(void)
{
    pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
    pmix_info_t info[1], *results = NULL;
    size_t count = 0;
    bool yes = true;
    PMIX_INFO_LOAD(&info[0], PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    STATUS(PMIX_SUCCESS, PMIx_Group_construct("ours", &all, 1, info, 1, &results, &count));
    MUST(count == 1 && PMIX_CHECK_KEY(&results[0], PMIX_GROUP_CONTEXT_ID));
    STATUS(PMIX_SUCCESS, PMIx_Group_destruct("ours", NULL, 0));
    STATUS(PMIX_SUCCESS, PMIx_Connect(&all, 1, NULL, 0));
    STATUS(PMIX_SUCCESS, PMIx_Disconnect(&all, 1, NULL, 0));
    good();
}

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    signalled = number;
}

static void mode_control(void)
{
    pmix_proc_t other = proc_of(size - 1);
    pmix_info_t info[1];
    int number = SIGUSR1;
    signal(SIGUSR1, on_signal);
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    PMIX_INFO_LOAD(&info[0], PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT);
    if (me.rank == 0)
        STATUS(PMIX_SUCCESS, PMIx_Job_control(&other, 1, info, 1, NULL, NULL));
    for (int i = 0; me.rank == size - 1 && i < 300 && !signalled; i++)
        usleep(10000);
    MUST(me.rank != size - 1 || signalled == SIGUSR1);
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

static void mode_spawn(void)
{
    pmix_status_t rc;
    pmix_app_t app;
    pmix_nspace_t space;
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("/bin/true");
    PMIX_ARGV_APPEND(rc, app.argv, "true");
    app.maxprocs = 1;
    if (me.rank == 0)
        STATUS(PMIX_ERR_NOT_SUPPORTED, PMIx_Spawn(NULL, 0, &app, 1, space));
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    good();
}

static void mode_abort(void)
{
    STATUS(PMIX_SUCCESS, fence(NULL, 0, false, 0));
    if (me.rank == 1)
        PMIx_Abort(9, "that is enough", NULL, 0);
    sleep(20);
}

static const struct {
    const char *name;
    void (*run)(void);
} modes[] = {{"keys", mode_keys},
             {"programs", mode_programs},
             {"fence", mode_fence},
             {"subsets", mode_subsets},
             {"dead_before", mode_dead_before},
             {"lost_links", mode_lost_links},
             {"wait", mode_wait},
             {"timeout", mode_timeout},
             {"timeout_of_one", mode_timeout_of_one},
             {"modex", mode_modex},
             {"missing", mode_missing},
             {"large", mode_large},
             {"publish", mode_publish},
             {"event", mode_event},
             {"death", mode_death},
             {"dead_fence", mode_dead_fence},
             {"query", mode_query},
             {"group", mode_group},
             {"control", mode_control},
             {"spawn", mode_spawn},
             {"abort", mode_abort}};

int main(int argc, char **argv)
{
    pmix_value_t *v = NULL;
    arguments = argv + (argc > 1 ? 2 : 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    leave_early(argc > 1 ? argv[1] : NULL);
    pmix_status_t rc = PMIx_Init(&me, NULL, 0);
    if (rc != PMIX_SUCCESS) {
        printf("PMIx_Init: %s\n", PMIx_Error_string(rc));
        return 3;
    }
    pmix_proc_t all = proc_of(PMIX_RANK_WILDCARD);
    if (PMIx_Get(&all, PMIX_JOB_SIZE, NULL, 0, &v) == PMIX_SUCCESS)
        size = v->data.uint32;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (argc > 1 && strcmp(argv[1], modes[i].name) == 0)
            modes[i].run();
    PMIx_Finalize(NULL, 0);
    return 0;
}
