/* Modules: parts of ours that need a library few jobs use (libssh2, OpenSSL), opened when first needed.
 *
 * Executing a program linked to all of them costs more than a whole local launch; hvdrun and hvdagent need
 * only libc, libuv and protobuf-c. A module is NAME.so in the directory `modules` beside the program, or in
 * ../lib/hvd when installed. */
#pragma once

#include <stddef.h>

#include "common/base/err.h"

/* The path of a file in our module directory (also for programs such as hvd-engine). -1 with *e when it is
 * nowhere. */
int module_path(const char *file, char *path, size_t size, struct err *e);
/* Opens module `name` (once; it stays open) and returns the address of `symbol`; NULL with *e filled. A
 * module of another version than this program is refused. */
void *module_symbol(const char *name, const char *symbol, struct err *e);
/* The directory of the running program, without a slash at its end. */
int module_program_dir(char *path, size_t size, struct err *e);

/* Every module states its version once, at file scope. Weak: a test program may hold several modules. */
#define MODULE_DEFINE_VERSION __attribute__((weak)) const char hvd_module_version[] = HVD_VERSION
