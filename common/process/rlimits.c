#include "common/process/rlimits.h"

#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define PREFIX "RLIMIT_"

const struct rlimit_name rlimit_names[RLIMITS_COUNT] = {
    {"AS", RLIMIT_AS},       {"CORE", RLIMIT_CORE},       {"CPU", RLIMIT_CPU},       {"DATA", RLIMIT_DATA},
    {"FSIZE", RLIMIT_FSIZE}, {"MEMLOCK", RLIMIT_MEMLOCK}, {"NOFILE", RLIMIT_NOFILE}, {"NPROC", RLIMIT_NPROC},
    {"RSS", RLIMIT_RSS},     {"STACK", RLIMIT_STACK}};

const struct rlimit_name *rlimit_find(const char *name, size_t len)
{
    size_t prefix = sizeof PREFIX - 1;
    if (len > prefix && strncasecmp(name, PREFIX, prefix) == 0) {
        name += prefix;
        len -= prefix;
    }
    for (size_t i = 0; i < RLIMITS_COUNT; i++)
        if (strlen(rlimit_names[i].name) == len && strncasecmp(rlimit_names[i].name, name, len) == 0)
            return &rlimit_names[i];
    return NULL;
}
