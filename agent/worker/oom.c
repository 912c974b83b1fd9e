#include "agent/worker/oom.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"

uint64_t oom_count(const char *text)
{
    static const char name[] = "oom_kill ";
    for (const char *line = text; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, sizeof name - 1) == 0)
            return strtoull(line + sizeof name - 1, NULL, 10);
    return 0;
}

static uint64_t read_count(const char *file)
{
    char text[4096];
    (void)file_read(file, 0, text, sizeof text);
    return oom_count(text);
}

static void find_own(struct oom *o)
{
    const char *self, *mounts;
    bool here = false;
    if (containment_texts(&self, &mounts)) {
        here = containment_place(self, mounts, "memory.events", o->file, sizeof o->file) == 0 &&
               access(o->file, R_OK) == 0;
        here = here || (containment_place_v1(self, mounts, "memory", "memory.oom_control", o->file,
                                             sizeof o->file) == 0 &&
                        access(o->file, R_OK) == 0);
    }
    if (!here)
        o->file[0] = '\0';
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
