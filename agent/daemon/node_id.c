#include "agent/daemon/node_id.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "agent/daemon/state_file.h"
#include "common/base/log.h"

#define FILE_NAME "node"

int identity_open(const char *directory, char text[IDENTITY_TEXT], struct err *e)
{
    struct err unwritten = ERR_INIT;
    uint64_t part[2];
    kept_file_read(directory, FILE_NAME, text, IDENTITY_TEXT);
    if (strspn(text, "0123456789abcdef") == IDENTITY_TEXT - 1)
        return 0;
    if (getrandom(part, sizeof part, 0) != (ssize_t)sizeof part)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random numbers");
    snprintf(text, IDENTITY_TEXT, "%016llx%016llx", (unsigned long long)part[0], (unsigned long long)part[1]);
    if (kept_file_write(directory, FILE_NAME, text, &unwritten) < 0)
        log_warning("%s", unwritten.text);
    return 0;
}
