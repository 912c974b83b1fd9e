/* Two ways to find children: /proc/PID/task/TID/children, which costs nothing when there are few; where the
 * kernel was built without it, one pass over all of /proc for the parents' numbers. */
#include "agent/worker/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/file.h"

struct pid_list {
    struct entry {
        pid_t pid, parent;
    } * item;
    size_t count, capacity;
};

static void list_add(struct pid_list *l, pid_t pid, pid_t parent)
{
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        struct entry *grown = realloc(l->item, capacity * sizeof *grown);
        if (!grown)
            return; /* the next walk finds the rest, when these have ended */
        l->item = grown;
        l->capacity = capacity;
    }
    l->item[l->count++] = (struct entry){pid, parent};
}

static pid_t parse_pid(const char *text)
{
    char *end;
    long pid = strtol(text, &end, 10);
    return end != text && *end == '\0' && pid > 0 ? (pid_t)pid : 0;
}

/* The pids in one `children` file. -1 when there is no such file. */
static int add_listed(struct pid_list *l, const char *path, pid_t parent)
{
    FILE *f = fopen(path, "re");
    long pid;
    if (!f)
        return -1;
    while (fscanf(f, "%ld", &pid) == 1)
        list_add(l, (pid_t)pid, parent);
    fclose(f);
    return 0;
}

static void add_children(struct pid_list *l, pid_t parent)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *d = opendir(path);
    for (struct dirent *task; d && (task = readdir(d));) {
        if (parse_pid(task->d_name) == 0)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", (int)parent, task->d_name);
        (void)add_listed(l, path, parent); /* the thread may have ended meanwhile */
    }
    if (d)
        closedir(d);
}

struct proc_stat {
    char name[DESCENDANT_NAME_MAX];
    char state;
    pid_t parent;
};

static bool read_stat(pid_t pid, struct proc_stat *out)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (file_read(path, 0, text, sizeof text) <= 0)
        return false;
    /* The name stands in parentheses and may hold anything, parentheses too: the last one counts. */
    char *open_paren = strchr(text, '('), *close_paren = strrchr(text, ')');
    int parent;
    if (!open_paren || !close_paren || sscanf(close_paren + 1, " %c %d", &out->state, &parent) != 2)
        return false;
    *close_paren = '\0';
    snprintf(out->name, sizeof out->name, "%s", open_paren + 1);
    out->parent = parent;
    return true;
}

static bool is_spared(const pid_t *spare, pid_t pid)
{
    for (; spare && *spare; spare++)
        if (*spare == pid)
            return true;
    return false;
}

/* All of /proc: repeated until a pass adds nobody, since a child may be listed before its parent. */
static void add_by_scan(struct pid_list *l, const pid_t *spare)
{
    pid_t self = getpid();
    size_t before;
    do {
        before = l->count;
        DIR *d = opendir("/proc");
        for (struct dirent *entry; d && (entry = readdir(d));) {
            struct proc_stat st;
            pid_t pid = parse_pid(entry->d_name);
            bool known = pid == 0 || is_spared(spare, pid) || !read_stat(pid, &st);
            bool below = !known && st.parent == self;
            for (size_t i = 0; i < l->count && !known; i++) {
                known = l->item[i].pid == pid;
                below = below || l->item[i].pid == st.parent;
            }
            if (!known && below)
                list_add(l, pid, st.parent);
        }
        if (d)
            closedir(d);
    } while (l->count > before);
}

static void add_descendants(struct pid_list *l, const pid_t *spare)
{
    if (access("/proc/thread-self/children", R_OK) < 0) {
        add_by_scan(l, spare);
        return;
    }
    add_children(l, getpid());
    for (size_t i = 0; i < l->count; i++) {
        if (is_spared(spare, l->item[i].pid))
            l->item[i--] = l->item[--l->count];
        else
            add_children(l, l->item[i].pid);
    }
}

/* Its own parent may have reaped it since it was listed, and its number may be a stranger's now. So the
 * process is held first and then looked at again: one that is ours has the parent it had, or came to us when
 * that one died. Another new parent is below us too; the next walk finds it. */
static bool signal_one(const struct entry *entry, int sig, bool (*wanted)(void *ctx, pid_t pid), void *ctx)
{
    struct proc_stat st;
    int pidfd = (int)syscall(SYS_pidfd_open, entry->pid, 0);
    bool ours = pidfd >= 0 && read_stat(entry->pid, &st) && st.state != 'Z' &&
                (st.parent == entry->parent || st.parent == getpid()) && (!wanted || wanted(ctx, entry->pid));
    bool reached = ours && syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) == 0;
    if (pidfd >= 0)
        close(pidfd);
    return reached;
}

size_t descendants_signal(int sig, const pid_t *spare)
{
    return descendants_signal_if(sig, spare, NULL, NULL);
}

size_t descendants_signal_if(int sig, const pid_t *spare, bool (*wanted)(void *ctx, pid_t pid), void *ctx)
{
    struct pid_list l = {0};
    size_t reached = 0;
    add_descendants(&l, spare);
    for (size_t i = 0; i < l.count; i++)
        reached += signal_one(&l.item[i], sig, wanted, ctx);
    free(l.item);
    return reached;
}

size_t descendants_list(struct descendant *out, size_t max)
{
    struct pid_list l = {0};
    size_t n = 0;
    add_descendants(&l, NULL);
    for (size_t i = 0; i < l.count && n < max; i++) {
        struct proc_stat st;
        if (!read_stat(l.item[i].pid, &st) || st.state == 'Z')
            continue;
        out[n].pid = l.item[i].pid;
        out[n].state = st.state;
        snprintf(out[n].name, sizeof out[n].name, "%s", st.name);
        n++;
    }
    free(l.item);
    return n;
}

size_t descendants_children(pid_t parent, pid_t *out, size_t max)
{
    struct pid_list l = {0};
    add_children(&l, parent);
    size_t n = l.count < max ? l.count : max;
    for (size_t i = 0; i < n; i++)
        out[i] = l.item[i].pid;
    free(l.item);
    return n;
}

bool descendants_any(const pid_t *except)
{
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
        return false; /* ECHILD: the common case, without a look into /proc */
    if (!except || !*except)
        return true;
    struct pid_list l = {0};
    bool any = false;
    add_descendants(&l, except);
    any = l.count > 0;
    free(l.item);
    return any;
}
