/* Opening NCCL, as driver.c opens the driver; nothing is initialised by that. */
#include "collectives/gpu/nccl.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/gpu/library.h"
#include "common/base/hash.h"

enum need { OPTIONAL, REQUIRED };
#define NCCL_ROW(need, result, name, parameters) {need, #name, offsetof(struct nccl, name)},
static const struct row {
    enum need need;
    const char *name;
    size_t at; /* in struct nccl */
} rows[] = {NCCL_FUNCTIONS(NCCL_ROW)};

static struct nccl nccl;

struct nccl_version_text nccl_version_text(int version)
{
    struct nccl_version_text v;
    int step = version < 10000 ? 1000 : 10000; /* up to 2.8 the minor number had one digit */
    snprintf(v.text, sizeof v.text, "%d.%d.%d", version / step, version % step / 100, version % 100);
    return v;
}

/* Any number but 0, as NCCL reads it. */
static bool is_told_to_share(void)
{
    const char *shared = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    return shared && strtol(shared, NULL, 0) != 0;
}

uint32_t nccl_host_of(int version, uint32_t first, uint32_t rank)
{
    const char *host = getenv("NCCL_HOSTID");
    if (version >= NCCL_SHARES_SINCE && is_told_to_share())
        return rank;
    return host ? hash_text(0, host) : first;
}

struct nccl_share_text nccl_why_not_shared(int version)
{
    struct nccl_share_text t = {""};
    if (version < NCCL_SHARES_SINCE && is_told_to_share())
        snprintf(t.text, sizeof t.text, " (NCCL %s does not know NCCL_MULTI_RANK_GPU_ENABLE)",
                 nccl_version_text(version).text);
    return t;
}

static int prepare_nccl(void *handle, struct err *e)
{
    const char *lacks = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *function = dlsym(handle, rows[i].name);
        memcpy((char *)&nccl + rows[i].at, &function, sizeof function);
        if (!function && !lacks && rows[i].need == REQUIRED)
            lacks = rows[i].name;
    }
    if (nccl.ncclGetVersion)
        nccl.ncclGetVersion(&nccl.version);
    struct nccl_version_text v = nccl_version_text(nccl.version);
    if (lacks)
        return err_set(e, ERR_UNSUPPORTED, "NCCL %s is too old: it lacks %s", v.text, lacks);
    if (nccl.version < NCCL_OLDEST)
        return err_set(e, ERR_UNSUPPORTED, "NCCL %s is too old: 2.18 or newer is needed", v.text);
    return 0;
}

static struct library library = LIBRARY_INIT("NCCL", NCCL_LIBRARY, prepare_nccl);

const struct nccl *nccl_open(struct err *e)
{
    return library_open(&library, e) == 0 ? &nccl : NULL;
}

/* NCCL's messages may end in a newline; an error here is one line. */
static void one_line(char *into, size_t size, const char *text)
{
    size_t n = 0;
    for (; text[n] && n + 1 < size; n++)
        into[n] = text[n] == '\n' || text[n] == '\r' ? ' ' : text[n];
    while (n > 0 && into[n - 1] == ' ')
        n--;
    into[n] = '\0';
}

static enum err_code code_of(nccl_result result)
{
    switch (result) {
    case NCCL_CUDA_ERROR:
    case NCCL_SYSTEM_ERROR:
        return ERR_SYSTEM;
    case NCCL_REMOTE_ERROR:
        return ERR_CLOSED;
    default:
        return ERR_UNSUPPORTED;
    }
}

void nccl_take(nccl_result *first, nccl_result result)
{
    if (*first == NCCL_OK && result != NCCL_IN_PROGRESS)
        *first = result;
}

int nccl_check(const struct nccl *n, nccl_result result, nccl_comm comm, struct err *e, const char *what, ...)
{
    if (result == NCCL_OK || result == NCCL_IN_PROGRESS)
        return 0;
    char attempt[ERR_TEXT_MAX / 3], last[ERR_TEXT_MAX / 3] = "";
    va_list list;
    va_start(list, what);
    vsnprintf(attempt, sizeof attempt, what, list);
    va_end(list);
    const char *text = n->ncclGetErrorString(result);
    const char *message = n->ncclGetLastError(comm);
    if (message)
        one_line(last, sizeof last, message);
    return err_set(e, code_of(result), "%s: NCCL: %s%s%s", attempt, text ? text : "unknown error",
                   last[0] ? ": " : "", last);
}
