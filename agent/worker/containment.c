#include "agent/worker/containment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

/* The mount point of the cgroup v2 tree and the part of the tree that is mounted there; both in the line's
 * own buffers. */
static int find_mount(const char *mountinfo, char *mount, size_t size, char *root, size_t root_size)
{
    for (const char *line = mountinfo; line && *line;
         line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        char text[1024], root_text[CONTAINMENT_PATH_MAX], mount_text[CONTAINMENT_PATH_MAX];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        if (!strstr(text, " - cgroup2 ") ||
            sscanf(text, "%*s %*s %*s %511s %511s", root_text, mount_text) != 2)
            continue;
        snprintf(mount, size, "%s", mount_text);
        snprintf(root, root_size, "%s", root_text);
        return 0;
    }
    return -1;
}

int containment_place(const char *self_cgroup, const char *mountinfo, const char *name, char *path,
                      size_t size)
{
    char mount[CONTAINMENT_PATH_MAX], root[CONTAINMENT_PATH_MAX], own[CONTAINMENT_PATH_MAX] = "";
    const char *line = strncmp(self_cgroup, "0::", 3) == 0 ? self_cgroup : strstr(self_cgroup, "\n0::");
    if (!line || find_mount(mountinfo, mount, sizeof mount, root, sizeof root) < 0)
        return -1;
    line = strchr(line, '/');
    if (line)
        snprintf(own, sizeof own, "%.*s", (int)strcspn(line, "\n"), line);
    /* A container may see only a branch of the tree. "/.." is a cgroup outside of it. */
    size_t root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const char *below = root_len && strncmp(own, root, root_len) == 0 ? own + root_len : own;
    if (strncmp(below, "/..", 3) == 0)
        return -1;
    if (strcmp(below, "/") == 0)
        below = "";
    int n = snprintf(path, size, "%s%s/%s", mount, below, name);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, word, len) == 0 && strchr(",", at[len]))
            return true;
    return false;
}

/* The next line of *text into `line`; false at the end. */
static bool next_line(const char **text, char *line, size_t size)
{
    size_t len = strcspn(*text, "\n");
    if (!**text)
        return false;
    snprintf(line, size, "%.*s", (int)len, *text);
    *text += len + ((*text)[len] == '\n');
    return true;
}

int containment_place_v1(const char *self_cgroup, const char *mountinfo, const char *controller,
                         const char *file, char *path, size_t size)
{
    char line[2048], list[128], own[CONTAINMENT_PATH_MAX], root[CONTAINMENT_PATH_MAX];
    char mount[CONTAINMENT_PATH_MAX];
    bool found = false, mounted = false;
    while (!found && next_line(&self_cgroup, line, sizeof line))
        found = sscanf(line, "%*[0-9]:%127[^:]:%511[^\n]", list, own) == 2 && has_word(list, controller);
    while (found && !mounted && next_line(&mountinfo, line, sizeof line)) {
        const char *type = strstr(line, " - cgroup ");
        mounted = type && sscanf(type, " - cgroup %*s %127s", list) == 1 && has_word(list, controller) &&
                  sscanf(line, "%*s %*s %*s %511s %511s", root, mount) == 2;
    }
    if (!mounted)
        return -1;
    /* A container may see only a branch of the tree. */
    size_t root_len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    const char *below = strncmp(own, root, root_len) == 0 ? own + root_len : own;
    if (strncmp(below, "/..", 3) == 0)
        return -1;
    if (strcmp(below, "/") == 0)
        below = "";
    int n = snprintf(path, size, "%s%s/%s", mount, below, file);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

char *containment_read(const char *file)
{
    FILE *f = fopen(file, "re");
    char *text = NULL;
    size_t size = 0;
    if (f && getdelim(&text, &size, '\0', f) < 0) {
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    return text;
}

bool containment_texts(const char **self_cgroup, const char **mountinfo)
{
    static char *self, *mounts;
    static uint64_t read_at;
    uint64_t now = clock_now();
    if (!self || !mounts || now - read_at > NSEC_PER_SEC) {
        free(self);
        free(mounts);
        self = containment_read("/proc/self/cgroup");
        mounts = containment_read("/proc/self/mountinfo");
        read_at = now;
    }
    *self_cgroup = self;
    *mountinfo = mounts;
    return self && mounts;
}

/* The leaf in which processes start. */
static int make_leaf(struct containment *c)
{
    if (mkdirat(c->lock, CONTAINMENT_LEAF, 0755) < 0 && errno != EEXIST)
        return -1;
    c->fd = openat(c->lock, CONTAINMENT_LEAF, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return c->fd < 0 ? -1 : 0;
}

/* One attempt; -1 with errno, ESTALE when another agent swept it away before the lock was ours. */
static int make_cgroup_once(struct containment *c)
{
    if (mkdir(c->path, 0755) < 0 && errno != EEXIST)
        return -1;
    c->lock = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->lock < 0 || flock(c->lock, LOCK_EX | LOCK_NB) < 0) {
        containment_close(c);
        errno = ESTALE;
        return -1;
    }
    /* Without cgroup.kill (Linux before 5.14) a cgroup is no better than the walk. */
    bool swept = make_leaf(c) < 0 && errno == ENOENT;
    if (c->fd >= 0 && faccessat(c->fd, "cgroup.procs", W_OK, 0) == 0 &&
        faccessat(c->lock, "cgroup.kill", W_OK, 0) == 0)
        return 0;
    int saved = swept ? ESTALE : errno;
    containment_close(c);
    (void)containment_remove(c->path, 0);
    errno = saved;
    return -1;
}

static int make_cgroup(struct containment *c)
{
    for (int attempt = 0; attempt < 8; attempt++)
        if (make_cgroup_once(c) == 0)
            return 0;
        else if (errno != ESTALE)
            break;
        else
            (void)poll(NULL, 0, 1);
    return -1;
}

static int place_here(const char *name, char *path, size_t size)
{
    const char *self, *mounts;
    return containment_texts(&self, &mounts) ? containment_place(self, mounts, name, path, size) : -1;
}

void containment_find(struct containment *c, const char *name)
{
    char full[128];
    *c = (struct containment){.lock = -1, .fd = -1};
    const char *asked = getenv(CONTAINMENT_VARIABLE);
    snprintf(full, sizeof full, CONTAINMENT_PREFIX "%s", name);
    if ((asked && strcmp(asked, "subreaper") == 0) || place_here(full, c->path, sizeof c->path) < 0)
        c->path[0] = '\0';
}

void containment_make(struct containment *c)
{
    if (!c->path[0] || make_cgroup(c) == 0)
        return;
    log_debug("no cgroup at %s: %s", c->path, strerror(errno));
    c->path[0] = '\0';
}

bool containment_holds(const struct containment *c)
{
    return c->fd < 0 || faccessat(c->fd, "cgroup.procs", F_OK, 0) == 0;
}

const char *containment_name(const struct containment *c)
{
    return c->fd >= 0 ? "cgroup" : "subreaper";
}

void containment_close(struct containment *c)
{
    if (c->fd >= 0)
        close(c->fd);
    if (c->lock >= 0)
        close(c->lock);
    c->fd = c->lock = -1;
}

void containment_kill(const char *path)
{
    char file[CONTAINMENT_PATH_MAX + 16];
    if (!path[0])
        return;
    snprintf(file, sizeof file, "%s/cgroup.kill", path);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "1", 1) < 0)
        log_warning("cannot kill the processes in %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
}

static bool remove_directory(const char *path)
{
    return rmdir(path) == 0 || errno == ENOENT;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)at;
    return type == FTW_DP && !remove_directory(path) ? -1 : 0;
}

/* With the cgroups below it, which a container makes there: those first. Most have the leaf alone. */
static int remove_tree(const char *path)
{
    char leaf[CONTAINMENT_PATH_MAX + sizeof CONTAINMENT_LEAF + 1];
    int n = snprintf(leaf, sizeof leaf, "%s/" CONTAINMENT_LEAF, path);
    if ((size_t)n < sizeof leaf && remove_directory(leaf) && remove_directory(path))
        return 0;
    if (nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS) < 0 && errno != ENOENT)
        return -1;
    return access(path, F_OK) < 0 && errno == ENOENT ? 0 : -1;
}

int containment_remove(const char *path, unsigned ms)
{
    char file[CONTAINMENT_PATH_MAX + 16];
    if (!path[0] || remove_tree(path) == 0)
        return 0;
    /* cgroup.events tells by POLLPRI when the last process has left. */
    snprintf(file, sizeof file, "%s/cgroup.events", path);
    struct pollfd p = {.fd = open(file, O_RDONLY | O_CLOEXEC), .events = POLLPRI};
    char text[128];
    if (p.fd >= 0 && read(p.fd, text, sizeof text) > 0 && remove_tree(path) < 0 && errno == EBUSY)
        (void)poll(&p, 1, (int)ms);
    if (p.fd >= 0)
        close(p.fd);
    return remove_tree(path);
}

/* Is this directory a cgroup of such a job? <prefix><job>-<host index> */
static bool belongs_to(const char *entry, const char *job)
{
    size_t prefix = strlen(CONTAINMENT_PREFIX);
    const char *last = strrchr(entry, '-');
    if (strncmp(entry, CONTAINMENT_PREFIX, prefix) != 0 || last < entry + prefix || !last[1] ||
        last[1 + strspn(last + 1, "0123456789")])
        return false;
    return !job ||
           (strlen(job) == (size_t)(last - entry) - prefix && strncmp(entry + prefix, job, strlen(job)) == 0);
}

static void sweep_one(const char *path, bool held_too)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        (flock(fd, LOCK_EX | LOCK_NB) == 0 || held_too)) {
        log_debug("sweeping away %s", path);
        containment_kill(path);
        (void)containment_remove(path, 1000);
    }
    if (fd >= 0)
        close(fd);
}

void containment_sweep(const char *job, bool all)
{
    char parent[CONTAINMENT_PATH_MAX], path[2 * CONTAINMENT_PATH_MAX];
    if (place_here("", parent, sizeof parent) < 0)
        return;
    DIR *d = opendir(parent);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (!belongs_to(entry->d_name, job))
            continue;
        snprintf(path, sizeof path, "%s%s", parent, entry->d_name);
        sweep_one(path, all);
    }
    if (d)
        closedir(d);
}
