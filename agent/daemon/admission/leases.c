#include "agent/daemon/admission/leases.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "agent/guard/job_dir.h"
#include "common/base/file.h"
#include "common/base/log.h"

#define FILE_MAX     1024
#define SUFFIX       ".service"
#define SLOTS_ARE(n) ((n) == 1 ? "slot is" : "slots are")
#define HOLDERS      6 /* named in a refusal */
#define PATH_ROOM    (sizeof((struct leases *)0)->directory + LEASE_UNIT_MAX + 8)
#define LEASE_TEXT   "job: %64[a-z0-9-]\nuser: %63[^\n]\nuid: %u\nslots: %u\nsince: %" SCNu64 "\n%n"

/* ---- policy -------------------------------------------------------------------------------------------- */

uint32_t leases_slots_taken(const struct leases *l)
{
    uint64_t taken = 0;
    for (size_t i = 0; i < l->count; i++)
        taken += l->item[i].slots;
    return taken < UINT32_MAX ? (uint32_t)taken : UINT32_MAX;
}

struct lease *leases_find(struct leases *l, const char *unit)
{
    for (size_t i = 0; i < l->count; i++)
        if (strcmp(l->item[i].unit, unit) == 0)
            return &l->item[i];
    return NULL;
}

static uint32_t jobs_of(const struct leases *l, uid_t uid)
{
    uint32_t jobs = 0;
    for (size_t i = 0; i < l->count; i++)
        jobs += l->item[i].uid == uid;
    return jobs;
}

/* "alice 3, bob 1": the slots of each user, without the names of their jobs. */
static void name_holders(const struct leases *l, char *text, size_t size)
{
    size_t used = 0, named = 0;
    text[0] = '\0';
    for (size_t i = 0; i < l->count && used < size; i++) {
        uint64_t slots = 0;
        size_t first = 0;
        while (l->item[first].uid != l->item[i].uid)
            first++;
        if (first < i)
            continue;
        for (size_t k = i; k < l->count; k++)
            slots += l->item[k].uid == l->item[i].uid ? l->item[k].slots : 0;
        if (named++ == HOLDERS) {
            snprintf(text + used, size - used, ", ...");
            return;
        }
        int n = snprintf(text + used, size - used, "%s%s %" PRIu64, used ? ", " : "", l->item[i].user, slots);
        used += n > 0 ? (size_t)n : 0;
    }
}

static uint32_t slots_free(const struct leases *l, const struct lease_rules *rules)
{
    uint32_t taken = rules->share ? 0 : leases_slots_taken(l);
    return taken < rules->slots ? rules->slots - taken : 0;
}

static uint64_t gpus_free(const struct leases *l, const struct lease_rules *rules)
{
    uint64_t all = rules->gpus < GPU_SET_MAX ? (UINT64_C(1) << rules->gpus) - 1 : UINT64_MAX;
    for (size_t i = 0; i < l->count; i++)
        all &= ~l->item[i].gpus;
    return all;
}

const char *leases_free(const struct leases *l, const struct lease_rules *rules, char text[LEASES_FREE_TEXT])
{
    char holders[256], gpus[64] = "";
    unsigned left = (unsigned)__builtin_popcountll(gpus_free(l, rules));
    name_holders(l, holders, sizeof holders);
    if (rules->gpus && !rules->share && left < slots_free(l, rules))
        snprintf(gpus, sizeof gpus, ", and %u of %u GPUs", left, rules->gpus);
    snprintf(text, LEASES_FREE_TEXT, "%u of %u are free%s%s%s%s", slots_free(l, rules), rules->slots, gpus,
             *holders ? " (" : "", holders, *holders ? ")" : "");
    return text;
}

/* As large a part of the GPUs as of the slots, and a whole one at least. */
static uint32_t gpus_for(const struct lease_rules *rules, uint32_t slots)
{
    uint64_t part = ((uint64_t)slots * rules->gpus + rules->slots - 1) / rules->slots;
    return rules->share ? 0 : (uint32_t)part;
}

/* The first `count` of them. */
static uint64_t pick_gpus(uint64_t free, uint32_t count)
{
    uint64_t set = 0;
    for (; count > 0; count--) {
        set |= free & -free;
        free &= free - 1;
    }
    return set;
}

static enum lease_verdict share_out(const struct leases *l, const struct lease_rules *rules,
                                    const struct lease_want *want, struct lease *lease, struct err *e)
{
    char text[LEASES_FREE_TEXT];
    uint64_t gpus = gpus_free(l, rules);
    uint32_t free = slots_free(l, rules), left = (uint32_t)__builtin_popcountll(gpus);
    bool fewer = want->fewer || !want->slots;
    uint32_t most = want->slots ? want->slots : rules->slots;
    uint32_t slots = fewer && most > free ? free : most;
    while (fewer && slots > 0 && gpus_for(rules, slots) > left)
        slots--;
    if (slots > 0 && slots <= free && gpus_for(rules, slots) <= left) {
        lease->slots = slots;
        lease->gpus = pick_gpus(gpus, gpus_for(rules, slots));
        return LEASE_GIVEN;
    }
    uint32_t least = fewer ? 1 : want->slots;
    err_set(e, ERR_BUSY, "it is busy: %u %s wanted, %s", least, SLOTS_ARE(least),
            leases_free(l, rules, text));
    return LEASE_BUSY;
}

/* Makes a name for the unit that no other lease has. */
static void name_unit(const struct leases *l, struct lease *lease)
{
    snprintf(lease->unit, sizeof lease->unit, LEASE_PREFIX "%s" SUFFIX, lease->job);
    for (unsigned n = 2; leases_find((struct leases *)(uintptr_t)l, lease->unit); n++)
        snprintf(lease->unit, sizeof lease->unit, LEASE_PREFIX "%s.%u" SUFFIX, lease->job, n);
}

static enum lease_verdict check_jobs(const struct leases *l, const struct lease_rules *rules,
                                     const struct lease_want *want, struct err *e)
{
    if (l->count >= LEASES_MAX || (rules->max_jobs && l->count >= rules->max_jobs)) {
        err_set(e, ERR_HOST, "it runs %zu jobs, and more are not allowed (max_jobs)", l->count);
        return LEASE_BUSY;
    }
    if (rules->max_jobs_per_user && jobs_of(l, want->uid) >= rules->max_jobs_per_user) {
        err_set(e, ERR_HOST, "%s runs %u jobs there, and more are not allowed to a user (max_jobs_per_user)",
                want->user, jobs_of(l, want->uid));
        return LEASE_OWN_LIMIT;
    }
    return LEASE_GIVEN;
}

/* A node that a job reaches by two names could be waited for until the job itself has ended. */
static int check_room(const struct leases *l, const struct lease_rules *rules, const struct lease_want *want,
                      struct err *e)
{
    uint64_t least = want->fewer || !want->slots ? 1 : want->slots, own = 0;
    for (size_t i = 0; i < l->count && !rules->share; i++)
        if (l->item[i].uid == want->uid && strcmp(l->item[i].job, want->job) == 0)
            own += l->item[i].slots;
    if (want->slots > rules->slots && !want->fewer)
        return err_set(e, ERR_HOST, "%u %s wanted, it has %u", want->slots, SLOTS_ARE(want->slots),
                       rules->slots);
    if (own && own + least > rules->slots)
        return err_set(e, ERR_HOST,
                       "%u %s wanted beside the %u that the same job has there already, it has %u",
                       (unsigned)least, SLOTS_ARE(least), (unsigned)own, rules->slots);
    return 0;
}

enum lease_verdict leases_admit(const struct leases *l, const struct lease_rules *rules,
                                const struct lease_want *want, struct lease *lease, struct err *e)
{
    enum lease_verdict verdict;
    if (job_dir_check_name(want->job, e) < 0 || check_room(l, rules, want, e) < 0)
        return LEASE_NEVER;
    *lease = (struct lease){.uid = want->uid, .since = (uint64_t)time(NULL), .confirmed = true};
    verdict = check_jobs(l, rules, want, e);
    verdict = verdict == LEASE_GIVEN ? share_out(l, rules, want, lease, e) : verdict;
    if (verdict != LEASE_GIVEN)
        return verdict;
    snprintf(lease->job, sizeof lease->job, "%s", want->job);
    snprintf(lease->user, sizeof lease->user, "%s", want->user);
    name_unit(l, lease);
    return LEASE_GIVEN;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static void path_of(const struct leases *l, const char *unit, char path[PATH_ROOM])
{
    int stem = (int)(strlen(unit) - strlen(SUFFIX));
    snprintf(path, PATH_ROOM, "%s/%.*s", l->directory, stem, unit);
}

static int write_file(const char *path, const struct lease *lease, struct err *e)
{
    char text[FILE_MAX], gpus[GPU_SET_TEXT];
    int len = snprintf(text, sizeof text, "job: %s\nuser: %s\nuid: %u\nslots: %u\nsince: %" PRIu64 "\n",
                       lease->job, lease->user, (unsigned)lease->uid, lease->slots, lease->since);
    if (lease->gpus)
        len += snprintf(text + len, sizeof text - (size_t)len, "gpus: %s\n", gpu_set_text(lease->gpus, gpus));
    return file_replace(path, 0600, text, (size_t)len, "the lease ", e);
}

/* "key: value", one a line. Keys of later releases are left alone: a lease that is not known would be lost,
 * and its slots given to another job. -1: a line is none, or has no good value. */
static int read_further_lines(char *text, struct lease *lease)
{
    for (char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end || strcspn(line, ": \n") == 0 || strncmp(line + strcspn(line, ": \n"), ": ", 2) != 0)
            return -1;
        *end = '\0';
        if (strncmp(line, "gpus: ", 6) == 0 && !gpu_set_read(line + 6, &lease->gpus))
            return -1;
    }
    return 0;
}

/* Reads the lease in a file; -1 when the file holds none. */
static int read_file(const char *directory, const char *name, struct lease *lease)
{
    char path[PATH_ROOM], text[FILE_MAX];
    unsigned uid;
    int end = 0;
    if (strncmp(name, LEASE_PREFIX, strlen(LEASE_PREFIX)) != 0 ||
        strlen(name) + strlen(SUFFIX) >= sizeof lease->unit)
        return -1;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    ssize_t n = file_read(path, O_NOFOLLOW, text, sizeof text);
    if (n <= 0)
        return -1;
    *lease = (struct lease){0};
    if (sscanf(text, LEASE_TEXT, lease->job, lease->user, &uid, &lease->slots, &lease->since, &end) != 5 ||
        strlen(text) != (size_t)n || text[n - 1] != '\n' || lease->slots == 0)
        return -1;
    if (read_further_lines(text + end, lease) < 0)
        return -1;
    lease->uid = uid;
    snprintf(lease->unit, sizeof lease->unit, "%s" SUFFIX, name);
    return 0;
}

static int keep_lease(struct leases *l, const struct lease *lease, struct err *e)
{
    struct lease *more = reallocarray(l->item, l->count + 1, sizeof *more);
    if (!more)
        return err_set(e, ERR_MEMORY, "no memory for a lease");
    l->item = more;
    l->item[l->count++] = *lease;
    return 0;
}

int leases_open(struct leases *l, const char *directory, struct err *e)
{
    int rc = 0;
    struct lease lease;
    *l = (struct leases){0};
    snprintf(l->directory, sizeof l->directory, "%s/leases", directory);
    if (mkdir(l->directory, 0700) < 0 && errno != EEXIST)
        return err_sys(e, errno, "cannot make the directory %s", l->directory);
    DIR *d = opendir(l->directory);
    if (!d)
        return err_sys(e, errno, "cannot read the directory %s", l->directory);
    for (struct dirent *entry; rc == 0 && (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        if (l->count < LEASES_MAX && read_file(l->directory, entry->d_name, &lease) == 0) {
            rc = keep_lease(l, &lease, e);
            continue;
        }
        log_warning("%s/%s is no lease: it is removed", l->directory, entry->d_name);
        (void)unlinkat(dirfd(d), entry->d_name, 0);
    }
    closedir(d);
    return rc;
}

void leases_close(struct leases *l)
{
    free(l->item);
    l->item = NULL;
    l->count = 0;
}

int leases_add(struct leases *l, const struct lease *lease, struct err *e)
{
    char path[PATH_ROOM];
    path_of(l, lease->unit, path);
    if (write_file(path, lease, e) == 0 && keep_lease(l, lease, e) == 0)
        return 0;
    (void)unlink(path);
    return -1;
}

int leases_shrink(struct leases *l, struct lease *lease, uint32_t slots, struct err *e)
{
    char path[PATH_ROOM];
    struct lease less = *lease;
    uint32_t gpus = (uint32_t)__builtin_popcountll(lease->gpus);
    if (slots == 0 || slots >= lease->slots)
        return 0;
    less.slots = slots;
    less.gpus =
        pick_gpus(lease->gpus, (uint32_t)(((uint64_t)gpus * slots + lease->slots - 1) / lease->slots));
    path_of(l, lease->unit, path);
    if (write_file(path, &less, e) < 0)
        return -1;
    *lease = less;
    return 0;
}

void leases_drop(struct leases *l, const char *unit)
{
    char path[PATH_ROOM];
    struct lease *lease = leases_find(l, unit);
    if (!lease)
        return;
    path_of(l, unit, path);
    if (unlink(path) < 0 && errno != ENOENT)
        log_error("cannot remove the lease %s: %s", path, strerror(errno));
    *lease = l->item[--l->count];
}
