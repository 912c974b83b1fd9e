#include "agent/supervisor/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

uint64_t oom_count(const char *text)
{
    static const char name[] = "oom_kill ";
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, sizeof name - 1) == 0)
            return strtoull(line + sizeof name - 1, NULL, 10);
    return 0;
}

static bool has_memory(const char *list)
{
    static const char word[] = "memory";
    for (const char *at = list; at; at = strchr(at, ','), at = at ? at + 1 : NULL)
        if (strncmp(at, word, sizeof word - 1) == 0 && strchr(",", at[sizeof word - 1]))
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

int oom_place_v1(const char *self_cgroup, const char *mountinfo, char *path, size_t size)
{
    char line[2048], list[128], own[CONTAINMENT_PATH_MAX], root[CONTAINMENT_PATH_MAX];
    char mount[CONTAINMENT_PATH_MAX];
    bool found = false;
    while (!found && next_line(&self_cgroup, line, sizeof line))
        found = sscanf(line, "%*[0-9]:%127[^:]:%511[^\n]", list, own) == 2 && has_memory(list);
    bool mounted = false;
    while (found && !mounted && next_line(&mountinfo, line, sizeof line)) {
        const char *type = strstr(line, " - cgroup ");
        mounted = type && sscanf(type, " - cgroup %*s %127s", list) == 1 && has_memory(list) &&
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
    int n = snprintf(path, size, "%s%s/memory.oom_control", mount, below);
    return n > 0 && (size_t)n < size ? 0 : -1;
}

static uint64_t read_count(const char *file)
{
    char text[4096];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return oom_count(text);
}

static void find_own(struct oom *o)
{
    char *self = containment_read("/proc/self/cgroup"), *mounts = containment_read("/proc/self/mountinfo");
    bool here = false;
    if (self && mounts) {
        here = containment_place(self, mounts, "memory.events", o->file, sizeof o->file) == 0 &&
               access(o->file, R_OK) == 0;
        here =
            here || (oom_place_v1(self, mounts, o->file, sizeof o->file) == 0 && access(o->file, R_OK) == 0);
    }
    if (!here)
        o->file[0] = '\0';
    free(self);
    free(mounts);
}

void oom_open(struct oom *o, const char *containment)
{
    *o = (struct oom){.seen = 0};
    if (containment[0])
        snprintf(o->file, sizeof o->file, "%s/memory.events", containment);
    if (!o->file[0] || access(o->file, R_OK) < 0)
        find_own(o);
    o->seen = o->file[0] ? read_count(o->file) : 0;
    log_debug("kills for lack of memory are counted in %s", o->file[0] ? o->file : "no file");
}

bool oom_explains(struct oom *o)
{
    if (!o->file[0] || read_count(o->file) <= o->seen)
        return false;
    o->seen++; /* each kill explains one death */
    return true;
}
