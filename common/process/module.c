#include "common/process/module.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int module_program_dir(char *path, size_t size, struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", path, size);
    if (n < 0)
        return err_sys(e, errno, "cannot find the path of this program");
    if ((size_t)n >= size)
        return err_set(e, ERR_SYSTEM, "the path of this program is too long");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        *slash = '\0';
    return 0;
}

/* Parts that a build leaves out when their library is not installed. */
static const struct {
    const char *file, *gives, *package;
} optional[] = {
    {"hvd-pmix", "PMIx for MPI programs", "libpmix-dev"},
    {"gloo.so", "the store for Gloo", "libmicrohttpd-dev"},
    {"metrics.so", "metrics", "libmicrohttpd-dev"},
    {"yaml.so", "configuration files", "libyaml-dev"},
    {"topology.so", "binding to processors", "libhwloc-dev"},
    {"systemd.so", "the managed agent", "libsystemd-dev"},
};

static int refuse_missing(const char *file, const char *dir, struct err *e)
{
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        if (strcmp(file, optional[i].file) != 0)
            continue;
        err_set(e, ERR_SYSTEM, "this build has no %s: %s is neither in %s/modules nor in %s/../lib/hvd",
                optional[i].gives, file, dir, dir);
        return err_hint(e,
                        "install %s (Debian's name; `make deps` does), then run make, or make install, again",
                        optional[i].package);
    }
    err_set(e, ERR_SYSTEM, "cannot find %s in %s/modules or %s/../lib/hvd", file, dir, dir);
    return err_hint(e, "the installation is not complete: run make, or make install, again");
}

int module_path(const char *file, char *path, size_t size, struct err *e)
{
    static const char *const places[] = {"modules", ".", "../lib/hvd", "../modules"};
    char dir[PATH_MAX];
    if (module_program_dir(dir, sizeof dir, e) < 0)
        return -1;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int n = snprintf(path, size, "%s/%s/%s", dir, places[i], file);
        if (n > 0 && (size_t)n < size && access(path, R_OK) == 0)
            return 0;
    }
    return refuse_missing(file, dir, e);
}

void *module_symbol(const char *name, const char *symbol, struct err *e)
{
    char file[128];
    snprintf(file, sizeof file, "%s.so", name);
    char path[PATH_MAX];
    if (module_path(file, path, sizeof path, e) < 0)
        return NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        err_set(e, ERR_SYSTEM, "cannot open module %s: %s", name, dlerror());
        return NULL;
    }
    const char *version = dlsym(handle, "hvd_module_version");
    if (!version || strcmp(version, HVD_VERSION) != 0) {
        err_set(e, ERR_VERSION, "module %s is version %s, this program is %s", path,
                version ? version : "unknown", HVD_VERSION);
        return NULL;
    }
    void *address = dlsym(handle, symbol);
    if (!address)
        err_set(e, ERR_SYSTEM, "module %s has no symbol %s", path, symbol);
    return address;
}
