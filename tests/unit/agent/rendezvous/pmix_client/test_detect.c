/* Commands that look as if they will use PMIx, and commands that do not. */
#include "agent/rendezvous/pmix_client/detect.h"
#include "tests/unit/scratch.h"

#include <check.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[SCRATCH_MAX];

/* A program, as far as its needs go. */
struct program {
    ElfW(Ehdr) head;
    ElfW(Phdr) segment[2];
    ElfW(Dyn) entry[4];
    char names[64];
};

#define NAMES_AT 0x400000 /* the address of the file's begin */

static struct program program_that_needs(const char *library)
{
    struct program p = {.head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3,
                                             sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32},
                                 .e_phoff = offsetof(struct program, segment),
                                 .e_phentsize = sizeof(ElfW(Phdr)),
                                 .e_phnum = 2}};
    p.segment[0] = (ElfW(Phdr)){.p_type = PT_LOAD, .p_vaddr = NAMES_AT, .p_filesz = sizeof p};
    p.segment[1] = (ElfW(Phdr)){
        .p_type = PT_DYNAMIC, .p_offset = offsetof(struct program, entry), .p_filesz = sizeof p.entry};
    p.entry[0] = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = 1};
    p.entry[1] = (ElfW(Dyn)){.d_tag = DT_NEEDED, .d_un.d_val = 11};
    p.entry[2] = (ElfW(Dyn)){.d_tag = DT_STRTAB, .d_un.d_ptr = NAMES_AT + offsetof(struct program, names)};
    memcpy(p.names + 1, "libc.so.6", sizeof "libc.so.6");
    snprintf(p.names + 11, sizeof p.names - 11, "%s", library);
    return p;
}

static const char *file(const char *name, const void *bytes, size_t len)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, bytes, len), (ssize_t)len);
    close(fd);
    return path;
}

static bool needing(const char *library)
{
    struct program p = program_that_needs(library);
    return detect_pmix_in_file(file("program", &p, sizeof p));
}

START_TEST(libraries)
{
    ck_assert(needing("libmpi.so.40"));
    ck_assert(needing("libmpi_mpifh.so.40"));
    ck_assert(needing("libpmix.so.2"));
    ck_assert(!needing("libmpich.so.12"));
    ck_assert(!needing("libm.so.6"));
    ck_assert(!detect_pmix_in_file("/proc/self/exe"));
}
END_TEST

/* Any content of a file is read within its bounds, and the reading ends. */
START_TEST(damaged)
{
    const struct program good = program_that_needs("libmpi.so.40");
    for (size_t i = 0; i < sizeof good; i++) {
        struct program p = good;
        ((unsigned char *)&p)[i] ^= 0xff;
        (void)detect_pmix_in_file(file("damaged", &p, sizeof p));
        (void)detect_pmix_in_file(file("short", &good, i));
    }
}
END_TEST

START_TEST(scripts)
{
    static const char with[] = "from mpi4py import MPI\n", bang[] = "#!/usr/bin/env python3\nimport mpi4py\n",
                      without[] = "import os\n", shell[] = "#!/bin/sh\necho mpi4py\n";
    ck_assert(detect_pmix_in_file(file("a.py", with, sizeof with - 1)));
    ck_assert(detect_pmix_in_file(file("b", bang, sizeof bang - 1)));
    ck_assert(!detect_pmix_in_file(file("c.py", without, sizeof without - 1)));
    ck_assert(!detect_pmix_in_file(file("d", shell, sizeof shell - 1)));
}
END_TEST

START_TEST(commands)
{
    static const char with[] = "from mpi4py import MPI\n";
    struct program p = program_that_needs("libmpi.so.40");
    char *plain[] = {"./program", NULL}, *searched[] = {"program", NULL},
         *wrapped[] = {"env", "./program", NULL}, *script[] = {"python3", "-u", "a.py", NULL},
         *module[] = {"python3", "-m", "mpi4py.bench", NULL},
         *other[] = {"true", "program2", "/nonexistent", NULL};
    file("program", &p, sizeof p);
    file("a.py", with, sizeof with - 1);
    ck_assert(detect_pmix(plain, "/bin:/usr/bin", directory));
    ck_assert(detect_pmix(searched, directory, "/"));
    ck_assert(detect_pmix(wrapped, "/bin:/usr/bin", directory));
    ck_assert(detect_pmix(script, "/bin:/usr/bin", directory));
    ck_assert(detect_pmix(module, "/bin:/usr/bin", directory));
    ck_assert(!detect_pmix(other, "/bin:/usr/bin", directory));
}
END_TEST

/* Opening it for reading would wait for a writer, and could wake one. */
START_TEST(pipes_are_left_alone)
{
    char path[256];
    snprintf(path, sizeof path, "%s/pipe", directory);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert(!detect_pmix_in_file(path));
    ck_assert(!detect_pmix_in_file(directory));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("guess");
    TCase *tests = tcase_create("guess");
    char path[256];
    if (!scratch_dir(directory, "guess"))
        return 1;
    tcase_add_test(tests, libraries);
    tcase_add_test(tests, damaged);
    tcase_add_test(tests, scripts);
    tcase_add_test(tests, commands);
    tcase_add_test(tests, pipes_are_left_alone);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    static const char *const names[] = {"program", "damaged", "short", "a.py", "b", "c.py", "d", "pipe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    rmdir(directory);
    return failed ? 1 : 0;
}
