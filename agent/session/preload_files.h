/* Files that the launcher copies into the job's directory before the workers start (--preload): taken one
 * after the other, in the order in which they were announced, each checked against its SHA-256 when its last
 * byte is there. After a failure the caller gives up the job, and with it the directory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/guard/job_dir.h"
#include "common/net/auth.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

#define PRELOAD_WINDOW    (1u << 20) /* bytes of a file that may be on their way */
#define PRELOAD_FILES_MAX 1024

struct preload_files {
    char path[JOB_DIR_MAX + 16]; /* of their directory; empty: none were announced */
    int dir_fd, fd;              /* fd: of the file under way; -1: none is */
    Hvd__Preload *list;
    size_t at;    /* index of the file under way; list->n_file: all are there */
    uint64_t got; /* bytes of the file under way */
    void *digest;
    const struct auth_ops *auth;
};

/* All zeros are not enough: sets the descriptors to -1. */
void preload_files_init(struct preload_files *p);
/* Names that are no paths, each once, with digests. -1 with *e (ERR_PROTOCOL). */
int preload_files_check(const Hvd__Preload *asked, struct err *e);
struct job_dir_need preload_files_need(const Hvd__Preload *asked);
/* Makes a directory for them in the job's. Takes *asked over, also when it fails. */
int preload_files_open(struct preload_files *p, const struct job_dir *dir, Hvd__Preload *asked,
                       struct err *e);
/* The next bytes, of file `index`. -1 with *e. */
int preload_files_put(struct preload_files *p, uint32_t index, const uint8_t *bytes, size_t len,
                      struct err *e);
bool preload_files_are_complete(const struct preload_files *p);
/* Path of the index-th file, counted from 1; false: there is no such. */
bool preload_files_path(const struct preload_files *p, uint32_t number, char *out, size_t size);
/* The files stay: they go with the job's directory. */
void preload_files_close(struct preload_files *p);
