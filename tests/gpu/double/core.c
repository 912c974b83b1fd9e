/* The base of the double: settings, the trace and the list of misuses, faults that a test asks for,
 * handles. */
#include "tests/gpu/double/double.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

long double_setting(const char *name, long otherwise)
{
    const char *value = getenv(name);
    return value && *value ? strtol(value, NULL, 0) : otherwise;
}

bool double_is_slow(void)
{
    return double_setting("HVD_DOUBLE_REAL", 0) != 0;
}

void double_take(enum real_ms ms)
{
    if (double_is_slow())
        usleep((useconds_t)ms * 1000);
}

uint64_t double_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One write a line, so that the lines of several processes do not mix. */
static void line_to(const char *file, const char *format, va_list arguments)
{
    char line[512];
    int used = snprintf(line, sizeof line, "%d ", (int)getpid());
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    size_t n =
        (size_t)used +
        ((size_t)more < sizeof line - (size_t)used - 2 ? (size_t)more : sizeof line - (size_t)used - 2);
    int fd = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : STDERR_FILENO;

    line[n++] = '\n';
    if (fd >= 0 && write(fd, line, n) < 0 && file)
        fprintf(stderr, "gpu double: cannot write to %s\n", file);
    if (fd >= 0 && file)
        close(fd);
}

void double_trace(const char *format, ...)
{
    const char *file = getenv("HVD_DOUBLE_TRACE");
    va_list arguments;

    if (!file || !*file)
        return;
    va_start(arguments, format);
    line_to(file, format, arguments);
    va_end(arguments);
}

void double_host_sync(const char *function)
{
    double_trace("host-sync %s", function);
}

void double_misuse(const char *format, ...)
{
    const char *file = getenv("HVD_DOUBLE_LOG");
    char whole[400];
    va_list arguments;

    snprintf(whole, sizeof whole, "misuse: %s", format);
    va_start(arguments, format);
    line_to(file && *file ? file : NULL, whole, arguments);
    va_end(arguments);
}

/* ---- faults: the Nth call of a function fails ---- */
enum { FAULTS_MAX = 16 };
static struct fault {
    char function[48];
    long countdown, code;
    bool stays;
} faults[FAULTS_MAX];
static int n_faults = -1;

static void add_fault(const char *text, size_t length)
{
    char item[96], *colon, *at;
    const char *rank = getenv("HVD_RANK");
    struct fault *f = &faults[n_faults];

    snprintf(item, sizeof item, "%.*s", (int)length, text);
    colon = strchr(item, ':');
    if (!colon || n_faults == FAULTS_MAX) {
        double_misuse("HVD_DOUBLE_FAIL: %s is not function[@RANK]:N[+][:CODE]", item);
        return;
    }
    *colon++ = 0;
    at = strchr(item, '@');
    if (at) {
        *at++ = 0;
        if (strcmp(rank ? rank : "none", at) != 0)
            return;
    }
    snprintf(f->function, sizeof f->function, "%.47s", item);
    f->countdown = strtol(colon, &colon, 10);
    f->stays = *colon == '+';
    colon += f->stays;
    f->code = *colon == ':' ? strtol(colon + 1, NULL, 10) : -1;
    n_faults++;
}

static void read_faults(const char *list)
{
    n_faults = 0;
    while (list && *list) {
        size_t length = strcspn(list, ",");

        add_fault(list, length);
        list += length + (list[length] == ',');
    }
}

void double_fail(const char *list)
{
    pthread_mutex_lock(&lock);
    read_faults(list);
    pthread_mutex_unlock(&lock);
}

/* cuMemAlloc stands for cuMemAlloc_v2 too. */
static bool names_it(const char *fault, const char *function)
{
    size_t n = strlen(fault);
    return strncmp(fault, function, n) == 0 && (!function[n] || strcmp(function + n, "_v2") == 0);
}

/* function[@RANK]:MS of HVD_DOUBLE_SLOW */
static void take_time(const char *function)
{
    const char *setting = getenv("HVD_DOUBLE_SLOW"), *rank = getenv("HVD_RANK");
    char item[96], *colon, *at;

    snprintf(item, sizeof item, "%s", setting ? setting : "");
    if (!(colon = strchr(item, ':')))
        return;
    *colon++ = 0;
    if ((at = strchr(item, '@')))
        *at++ = 0;
    if (names_it(item, function) && (!at || strcmp(rank ? rank : "none", at) == 0))
        usleep((useconds_t)strtol(colon, NULL, 10) * 1000);
}

int double_fault(const char *function)
{
    int code = 0;

    double_trace("%s", function);
    take_time(function);
    pthread_mutex_lock(&lock);
    if (n_faults < 0)
        read_faults(getenv("HVD_DOUBLE_FAIL"));
    for (int i = 0; i < n_faults; i++)
        if (names_it(faults[i].function, function) &&
            (--faults[i].countdown == 0 || (faults[i].stays && faults[i].countdown < 0)))
            code = (int)faults[i].code;
    pthread_mutex_unlock(&lock);
    if (code)
        double_trace("failed %s %d", function, code);
    return code;
}

/* ---- handles ---- */
static const char *const kind_names[HANDLE_KINDS] = {
    "", "context", "stream", "event", "module", "kernel", "allocation", "communicator", "registration"};
static struct slot {
    void *object;
    enum handle_kind kind;
    bool alive;
} * slots;
static size_t n_slots, slots_size;
static int alive[HANDLE_KINDS];

#define HANDLE_BASE 0x5d0000000000u

void *double_handle_new(enum handle_kind kind, void *object)
{
    size_t index;

    pthread_mutex_lock(&lock);
    if (n_slots == slots_size) {
        slots_size = slots_size ? slots_size * 2 : 256;
        slots = realloc(slots, slots_size * sizeof *slots);
        if (!slots)
            abort();
    }
    index = n_slots++;
    slots[index] = (struct slot){object, kind, true};
    alive[kind]++;
    pthread_mutex_unlock(&lock);
    return (void *)(uintptr_t)(HANDLE_BASE + ((uint64_t)kind << 36) + index * 16);
}

static struct slot *find(enum handle_kind kind, const void *handle)
{
    uint64_t index = ((uintptr_t)handle - (HANDLE_BASE + ((uint64_t)kind << 36))) / 16;
    return index < n_slots && slots[index].kind == kind ? &slots[index] : NULL;
}

void *double_handle_get(enum handle_kind kind, const void *handle)
{
    struct slot *slot;
    void *object = NULL;
    bool was = false;

    pthread_mutex_lock(&lock);
    slot = find(kind, handle);
    if (slot) {
        was = !slot->alive;
        object = slot->alive ? slot->object : NULL;
    }
    pthread_mutex_unlock(&lock);
    if (!object)
        double_misuse("%p is %s %s", handle, was ? "no longer a" : "no", kind_names[kind]);
    return object;
}

void double_handle_drop(enum handle_kind kind, const void *handle)
{
    struct slot *slot;

    pthread_mutex_lock(&lock);
    slot = find(kind, handle);
    if (slot && slot->alive) {
        slot->alive = false;
        alive[kind]--;
    }
    pthread_mutex_unlock(&lock);
}

static bool count_range(struct range *range, void *argument)
{
    ++*(int *)argument;
    return true;
}

/* Traces the objects that a process has not released when it exits. Contexts and kernels do not count. */
__attribute__((destructor)) static void tell_what_is_left(void)
{
    static const enum handle_kind told[] = {HANDLE_STREAM, HANDLE_EVENT, HANDLE_ALLOCATION,
                                            HANDLE_COMMUNICATOR, HANDLE_REGISTRATION};
    int ranges = 0;

    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (alive[told[i]])
            double_trace("left %s %d", kind_names[told[i]], alive[told[i]]);
    double_range_each(count_range, &ranges);
    if (ranges)
        double_trace("left memory %d", ranges);
}

void double_futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
}

void double_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
