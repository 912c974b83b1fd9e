/* --preload: the files that every host gets, opened and hashed before a host is reached. Read again for each
 * host, at its own pace; nothing of them stays in memory. */
#ifndef HVD_LAUNCHER_PARTS_PRELOAD_FILES_H
#define HVD_LAUNCHER_PARTS_PRELOAD_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "common/base/err.h"
#include "common/net/auth.h"
#include "common/options/options.h"
#include "common/protocol/control.pb-c.h"

struct preload_file {
    const char *path; /* as it was given */
    const char *name; /* there */
    int fd;
    struct stat st; /* when it was hashed */
    uint8_t digest[AUTH_DIGEST_SIZE];
};

struct preload {
    struct preload_file *file;
    size_t count;
    uint64_t bytes; /* of all */
};

/* The progress of one host. */
struct preload_place {
    size_t file;
    uint64_t offset;
    uint64_t credit;  /* bytes that it takes now */
    uint64_t granted; /* bytes, so far */
    bool started, done;
};

/* -1 with *e: a file that cannot be sent, two of one name. Then, too, *p is to be closed. */
int preload_files_open(struct preload *p, const struct option_list *list, struct err *e);
void preload_files_close(struct preload *p);
/* The file, counted from 1, that the first word of a command means: named as it was given, or ./ and its
 * name. 0: none. */
uint32_t preload_of(const struct preload *p, const char *command);
/* That file, if there is one, can be executed. */
int preload_check_command(const struct preload *p, const char *command, struct err *e);

/* The next bytes for a host, of file place->file, and *place behind them. 0: it has no credit, or all was
 * read; -1 with *e: a file has changed since it was hashed. *index becomes the file's. */
ptrdiff_t preload_read(const struct preload *p, struct preload_place *place, uint32_t *index, void *bytes,
                       size_t size, struct err *e);
/* All was read for that host. */
bool preload_is_sent(const struct preload *p, const struct preload_place *place);

#endif
