/* File: magic, identity, step, count, three parts of `count` floats, FNV-1a of everything before. Numbers in
 * the byte order of the machine: the magic is such a number, so a file of another order is refused. The file
 * is read whole and checked before anything is changed. */
#include "checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "corpus.h"

#define MAGIC UINT64_C(0x3150434e49415254)

struct header {
    uint64_t magic;
    struct run_identity run;
    int64_t step;
    uint64_t count;
};

static size_t file_size(size_t count)
{
    return sizeof(struct header) + 3 * count * sizeof(float) + sizeof(uint64_t);
}

static int compare(const char *path, const struct run_identity *have, const struct run_identity *want,
                   struct fault *f)
{
    const struct {
        const char *name;
        int64_t have, want;
    } field[] = {
        {"--context", have->context, want->context},
        {"--hidden", have->hidden, want->hidden},
        {"--global-batch", have->global_batch, want->global_batch},
        {"--seed", have->seed, want->seed},
    };

    for (size_t i = 0; i < sizeof field / sizeof field[0]; i++)
        if (field[i].have != field[i].want)
            return fault_set(f, "checkpoint %.200s was written with %s %lld, not %lld", path, field[i].name,
                             (long long)field[i].have, (long long)field[i].want);
    if (have->lr != want->lr)
        return fault_set(f, "checkpoint %.200s was written with --lr %g, not %g", path, have->lr, want->lr);
    if (have->data != want->data || have->alphabet != want->alphabet)
        return fault_set(f, "checkpoint %.200s was written with other --data", path);
    return 0;
}

static int check(const char *path, const uint8_t *bytes, const struct run_identity *run,
                 const struct run_state *state, struct header *h, struct fault *f)
{
    const size_t size = file_size(state->count);
    uint64_t digest;

    memcpy(h, bytes, sizeof *h);
    if (h->magic != MAGIC)
        return fault_set(f, "%.200s is not a checkpoint of train", path);
    if (compare(path, &h->run, run, f) != 0)
        return -1;
    memcpy(&digest, bytes + size - sizeof digest, sizeof digest);
    if (h->count != state->count || h->step < 0 ||
        digest != digest_add(DIGEST_START, bytes, size - sizeof digest))
        return fault_set(f, "checkpoint %.200s is damaged", path);
    return 0;
}

/* Up to `size` bytes of the file; the rest of the buffer stays zero. */
static int read_bytes(FILE *file, const char *path, uint8_t *bytes, size_t size, struct fault *f)
{
    size_t len = fread(bytes, 1, size, file);

    if (ferror(file))
        return fault_set(f, "checkpoint %.200s: %s", path, strerror(errno));
    if (len < sizeof(struct header))
        return fault_set(f, "%.200s is not a checkpoint of train", path);
    return 0;
}

int checkpoint_read(const char *path, const struct run_identity *run, struct run_state *state,
                    struct fault *f)
{
    const size_t size = file_size(state->count);
    FILE *file = fopen(path, "rbe");
    uint8_t *bytes = NULL;
    struct header h;
    int status = -1;

    if (file == NULL)
        return errno == ENOENT ? 0 : fault_set(f, "checkpoint %.200s: %s", path, strerror(errno));
    bytes = calloc(1, size);
    if (bytes == NULL)
        fault_set(f, "no memory for checkpoint %.200s", path);
    else if (read_bytes(file, path, bytes, size, f) == 0 && check(path, bytes, run, state, &h, f) == 0)
        status = 1;
    if (status == 1) {
        state->step = h.step;
        for (int i = 0; i < 3; i++)
            memcpy(state->part[i], bytes + sizeof h + (size_t)i * state->count * sizeof(float),
                   state->count * sizeof(float));
    }
    free(bytes);
    fclose(file);
    return status;
}

static int write_part(FILE *file, const void *bytes, size_t len, uint64_t *digest)
{
    *digest = digest_add(*digest, bytes, len);
    return fwrite(bytes, 1, len, file) == len ? 0 : -1;
}

static int write_file(FILE *file, const struct run_identity *run, const struct run_state *state)
{
    struct header h = {.magic = MAGIC, .run = *run, .step = state->step, .count = state->count};
    uint64_t digest = DIGEST_START, ignored = DIGEST_START;

    if (write_part(file, &h, sizeof h, &digest) != 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (write_part(file, state->part[i], state->count * sizeof(float), &digest) != 0)
            return -1;
    if (write_part(file, &digest, sizeof digest, &ignored) != 0 || fflush(file) != 0)
        return -1;
    return fsync(fileno(file));
}

/* Makes the rename last through a power cut. Not every file system can; the file is whole in any case. */
static void sync_folder(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    int fd;

    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - path) + 1 : 1,
             slash != NULL ? path : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

int checkpoint_write(const char *path, const struct run_identity *run, const struct run_state *state,
                     struct fault *f)
{
    char beside[4096];
    FILE *file;
    int saved = 0;

    if (snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside)
        return fault_set(f, "checkpoint: the path is too long");
    file = fopen(beside, "wbe");
    if (file == NULL)
        return fault_set(f, "checkpoint %.200s: %s", beside, strerror(errno));
    if (write_file(file, run, state) != 0)
        saved = errno != 0 ? errno : EIO;
    if (fclose(file) != 0 && saved == 0)
        saved = errno;
    if (saved == 0 && rename(beside, path) != 0)
        saved = errno;
    if (saved != 0) {
        unlink(beside);
        return fault_set(f, "checkpoint %.200s: %s", path, strerror(saved));
    }
    sync_folder(path);
    return 0;
}
