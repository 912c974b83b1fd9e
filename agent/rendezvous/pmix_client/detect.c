/* The first words of a command are looked at, because commands have wrappers (env, numactl, python). Only
 * plain files are opened. */
#include "agent/rendezvous/pmix_client/detect.h"

#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/process/spawn.h"

#define WORDS       8
#define SEGMENTS    64
#define ENTRIES     1024 /* of the dynamic section */
#define NAME_SIZE   64
#define SCRIPT_SIZE (64u << 10)

static const char *const libraries[] = {"libmpi.so", "libmpi_", "libpmix.so", "liboshmem.so", "libmpich.so"};
#define WITH_PMIX 4                    /* of these, the first */
static const char module[] = "mpi4py"; /* Python's */

struct elf {
    int fd;
    ElfW(Phdr) segment[SEGMENTS];
    size_t segments;
    ElfW(Dyn) entry[ENTRIES];
    size_t entries;
};

static bool read_at(int fd, void *to, size_t len, uint64_t at)
{
    return at <= INT64_MAX && pread(fd, to, len, (off_t)at) == (ssize_t)len;
}

/* ---- programs ------------------------------------------------------------------------------------------ */

static bool read_tables(struct elf *f)
{
    ElfW(Ehdr) head;
    const unsigned char class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    if (!read_at(f->fd, &head, sizeof head, 0) || memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != class || head.e_phentsize != sizeof *f->segment || head.e_phnum > SEGMENTS)
        return false;
    f->segments = head.e_phnum;
    if (!read_at(f->fd, f->segment, f->segments * sizeof *f->segment, head.e_phoff))
        return false;
    for (size_t i = 0; i < f->segments; i++) {
        const ElfW(Phdr) *s = &f->segment[i];
        if (s->p_type != PT_DYNAMIC || s->p_filesz > sizeof f->entry)
            continue;
        f->entries = s->p_filesz / sizeof *f->entry;
        return read_at(f->fd, f->entry, f->entries * sizeof *f->entry, s->p_offset);
    }
    return false;
}

/* The offset in the file of the bytes that will lie at that address. */
static bool find_offset(const struct elf *f, uint64_t address, uint64_t *offset)
{
    for (size_t i = 0; i < f->segments; i++) {
        const ElfW(Phdr) *s = &f->segment[i];
        if (s->p_type != PT_LOAD || address < s->p_vaddr || address - s->p_vaddr >= s->p_filesz)
            continue;
        *offset = address - s->p_vaddr + s->p_offset;
        return true;
    }
    return false;
}

static bool is_library(const struct elf *f, uint64_t offset, size_t count)
{
    char name[NAME_SIZE + 1] = "";
    if (offset > INT64_MAX || pread(f->fd, name, NAME_SIZE, (off_t)offset) <= 0)
        return false;
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, libraries[i], strlen(libraries[i])) == 0)
            return true;
    return false;
}

static bool program_uses(int fd, size_t count)
{
    struct elf f = {.fd = fd};
    uint64_t names = 0, at = 0;
    if (!read_tables(&f))
        return false;
    for (size_t i = 0; i < f.entries; i++)
        if (f.entry[i].d_tag == DT_STRTAB)
            names = f.entry[i].d_un.d_ptr;
    if (!find_offset(&f, names, &at))
        return false;
    for (size_t i = 0; i < f.entries && f.entry[i].d_tag != DT_NULL; i++)
        if (f.entry[i].d_tag == DT_NEEDED && is_library(&f, at + f.entry[i].d_un.d_val, count))
            return true;
    return false;
}

/* ---- scripts ------------------------------------------------------------------------------------------- */

static bool is_python(const char *path, const char *text, size_t len)
{
    const char *dot = strrchr(path, '.');
    const char *line = len > 2 && memcmp(text, "#!", 2) == 0 ? memchr(text, '\n', len) : NULL;
    return (dot && strcmp(dot, ".py") == 0) || (line && memmem(text, (size_t)(line - text), "python", 6));
}

static bool script_uses(int fd, const char *path)
{
    char *text = malloc(SCRIPT_SIZE);
    ssize_t n = text ? pread(fd, text, SCRIPT_SIZE, 0) : -1;
    bool uses = n > 0 && is_python(path, text, (size_t)n) && memmem(text, (size_t)n, module, strlen(module));
    free(text);
    return uses;
}

/* ---- commands ------------------------------------------------------------------------------------------ */

static bool file_uses(const char *path, size_t count)
{
    char magic[SELFMAG];
    struct stat st;
    bool uses = false;
    /* A device or a pipe must not even be opened. */
    int fd = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    if (fd < 0)
        return false;
    if (read_at(fd, magic, sizeof magic, 0))
        uses = memcmp(magic, ELFMAG, SELFMAG) == 0 ? program_uses(fd, count) : script_uses(fd, path);
    close(fd);
    return uses;
}

static bool command_uses(char *const *argv, const char *search, const char *wdir, size_t count)
{
    char path[PATH_MAX];
    struct err none = ERR_INIT;
    if (spawn_find(argv[0], search, wdir, path, sizeof path, &none) == 0 && file_uses(path, count))
        return true;
    for (size_t i = 1; i < WORDS && argv[i]; i++) {
        int n = snprintf(path, sizeof path, "%s%s%s", argv[i][0] == '/' ? "" : wdir,
                         argv[i][0] == '/' ? "" : "/", argv[i]);
        if (strncmp(argv[i], module, strlen(module)) == 0 ||
            (n > 0 && (size_t)n < sizeof path && file_uses(path, count)))
            return true;
    }
    return false;
}

bool detect_pmix(char *const *argv, const char *search, const char *wdir)
{
    return command_uses(argv, search, wdir, WITH_PMIX);
}

bool detect_mpi(char *const *argv, const char *search, const char *wdir)
{
    return command_uses(argv, search, wdir, sizeof libraries / sizeof *libraries);
}

bool detect_pmix_in_file(const char *path)
{
    return file_uses(path, WITH_PMIX);
}
