/* The life of an operation.
 *
 *   NEW -> RUNNING -> ENDED
 *   NEW -> SIZING -> RUNNING -> ENDED    an allgather or alltoall that asks first (rows.c)
 *   NEW -> HELD -> ...                   its name is in use, as names.py's are after a thousand calls
 *
 * An operation that has begun is in one list. Handles own those in `owned`. Those in `orphans` belong to
 * nobody: their Handle was dropped, or ^C ended the blocking call. Nobody waits for those in `sizing` either,
 * so every thread that waits looks after them too: else two ranks could each wait for another operation. The
 * same is true of those in `held`.
 *
 * The buffers of an operation are released when it has ended, never before. Those in a list when the
 * interpreter ends are not freed at all. */
#include "python/src/binding.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SLICE_MS  50  /* signal handlers run at least that often */
#define HURRY_MS  1   /* the same while other operations want to be looked after */
#define SOME      16  /* so many are looked after at each beginning of another */
#define SHARED_US 200 /* between two looks while another thread waits for the operation */

/* Rings, oldest first; an empty one is its head alone. */
static struct link owned = {&owned, &owned}, orphans = {&orphans, &orphans}, sizing = {&sizing, &sizing},
                   held = {&held, &held};
static size_t pending;
static size_t beginning; /* operations that are in begin_now() */
static void reap_some(size_t most);
static void step_operation(struct operation *o, unsigned ms);

static bool is_empty(const struct link *list)
{
    return list->after == list;
}

static struct operation *first_of(struct link *list)
{
    return (struct operation *)list->after; /* its first member */
}

static void unlink_operation(struct operation *o)
{
    if (!o->link.after)
        return;
    o->link.before->after = o->link.after;
    o->link.after->before = o->link.before;
    o->link.before = o->link.after = NULL;
}

/* To the list's end. */
static void move_to(struct link *list, struct operation *o)
{
    unlink_operation(o);
    o->link.before = list->before;
    o->link.after = list;
    list->before->after = &o->link;
    list->before = &o->link;
}

/* ---- from the beginning -------------------------------------------------------------------------------- */

struct operation *operation_new(enum kind kind, PyObject *name, PyObject *owner)
{
    struct operation *o;
    const char *text = "";
    Py_ssize_t length = 0;

    if (name && !PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "a tensor's name is a str, not %R", (PyObject *)Py_TYPE(name));
        return NULL;
    }
    if (name && !(text = PyUnicode_AsUTF8AndSize(name, &length)))
        return NULL;
    if (strlen(text) != (size_t)length) {
        PyErr_SetString(PyExc_ValueError, "a tensor's name has a byte 0");
        return NULL;
    }
    o = calloc(1, sizeof *o);
    if (!o) {
        PyErr_NoMemory();
        return NULL;
    }
    o->kind = kind;
    o->name = Py_XNewRef(name);
    o->owner = Py_XNewRef(owner);
    o->call.name = text;
    o->kept = o->first_kept;
    o->kept_room = 2;
    return o;
}

/* Buffers and owner. This may run any code of Python. */
static void release_kept(struct operation *o)
{
    PyObject *owner = o->owner;
    size_t n = o->kept_number;

    o->owner = NULL;
    o->kept_number = 0;
    for (size_t i = 0; i < n; i++)
        kept_release(&o->kept[i]);
    Py_XDECREF(owner);
}

void operation_free(struct operation *o)
{
    release_kept(o);
    rows_free(o);
    if (o->kept != o->first_kept)
        free(o->kept);
    free(o->call.splits);
    free(o->call.ins);
    free(o->call.outs);
    free(o->call.counts);
    free(o->call.row_counts);
    free(o->text);
    Py_XDECREF(o->result);
    Py_XDECREF(o->rows);
    Py_XDECREF(o->name);
    free(o);
}

int operation_reserve(struct operation *o, size_t n)
{
    if (n > o->kept_room) {
        o->kept = calloc(n, sizeof *o->kept);
        o->kept_room = n;
    }
    if (o->kept)
        return 0;
    o->kept = o->first_kept;
    PyErr_NoMemory();
    return -1;
}

int operation_keep(struct operation *o, PyObject *argument, bool written, struct place *place)
{
    struct kept *kept = &o->kept[o->kept_number];

    if (place_of(argument, written, place, kept) != 0)
        return -1;
    o->kept_number += kept->view.obj || kept->object;
    return 0;
}

/* ---- to the end ---------------------------------------------------------------------------------------- */

/* Takes over `text`. */
static void end_operation(struct operation *o, int status, char *text)
{
    unlink_operation(o);
    if (o->later)
        o->later->earlier = NULL;
    o->later = NULL;
    pending--;
    o->phase = PHASE_ENDED;
    o->status = status;
    o->text = text;
    if (status == HVD_ERR_MEMORY && (text = rows_misfit(o))) {
        free(o->text);
        o->text = text;
        o->status = HVD_ERR_INVALID;
    }
    if (status == HVD_SUCCESS && o->sizes && rows_take(o) != 0) {
        PyErr_Clear();
        o->status = HVD_ERR_MEMORY;
    }
    o->waiting = true; /* a finaliser may let other threads run, which drop the operation */
    release_kept(o);
    o->waiting = false;
}

/* The library's sentence of this thread. */
static char *copy_sentence(int status)
{
    return status < 0 ? strdup(hvd_last_error()) : NULL;
}

static bool has_rows(const struct operation *o)
{
    return o->kind == KIND_ALLGATHER || o->kind == KIND_ALLTOALL;
}

/* A status, with its sentence in `text`. */
static int begin_now(struct operation *o, char **text)
{
    bool asks = has_rows(o) && rows_must_ask(o);
    int status;

    move_to(&owned, o);
    o->waiting = true; /* it has no handle yet */
    beginning++;
    Py_BEGIN_ALLOW_THREADS status = asks ? rows_ask(o) : call_begin(o);
    *text = copy_sentence(status);
    Py_END_ALLOW_THREADS beginning--;
    o->waiting = false;
    if (status != HVD_SUCCESS)
        return status;
    o->phase = asks ? PHASE_SIZING : PHASE_RUNNING;
    if (asks || o->orphan)
        move_to(asks ? &sizing : &orphans, o);
    return status;
}

/* `o` waits for `before`, or for one that does. */
static bool waits_for(const struct operation *o, const struct operation *before)
{
    while (o && o != before)
        o = o->earlier;
    return o != NULL;
}

/* The last pending operation of the same name and process set that does not follow `o`; NULL: none. */
static struct operation *find_pending(const struct operation *o)
{
    struct link *const lists[] = {&held, &owned, &sizing, &orphans};

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (struct link *each = lists[i]->before; each != lists[i]; each = each->before) {
            struct operation *other = (struct operation *)each;
            if (!other->later && other->call.options.set == o->call.options.set &&
                strcmp(other->call.name, o->call.name) == 0 && !waits_for(other, o))
                return other;
        }
    return NULL;
}

/* The operation has a name of names.py that another pending one has: it begins after that. */
static bool hold_back(struct operation *o)
{
    if (!strstr(o->call.name, ".noname."))
        return false;
    unlink_operation(o);
    o->earlier = find_pending(o);
    if (!o->earlier)
        return false;
    o->earlier->later = o;
    o->phase = PHASE_HELD;
    move_to(&held, o);
    return true;
}

int operation_begin(struct operation *o)
{
    char *text = NULL;
    int status;

    if (!is_empty(&held) || !is_empty(&sizing) || !is_empty(&orphans))
        reap_some(SOME);
    if (has_rows(o) && rows_prepare(o) != 0)
        return -1;
    pending++;
    if ((!is_empty(&held) || beginning > 0) && hold_back(o))
        return 0;
    status = begin_now(o, &text);
    if (status == HVD_ERR_IN_PROGRESS && strstr(o->call.name, ".noname.")) {
        free(text);
        text = NULL;
        if (hold_back(o))
            return 0;
        status = begin_now(o, &text); /* the one before has ended meanwhile, in another thread */
    }
    if (status == HVD_SUCCESS)
        return 0;
    end_operation(o, status, text);
    return raise_status(status, text ? text : "");
}

static void sleep_us(long us)
{
    struct timespec t = {.tv_nsec = us * 1000};

    Py_BEGIN_ALLOW_THREADS nanosleep(&t, NULL);
    Py_END_ALLOW_THREADS
}

/* Begins a held operation whose turn it is, or waits for the one before. */
static void step_held(struct operation *o, unsigned ms)
{
    struct operation *before = o->earlier;
    char *text = NULL;
    int status;

    while (before && before->earlier && ms > 0)
        before = before->earlier;
    if (!before) {
        status = begin_now(o, &text);
        if (status != HVD_SUCCESS)
            end_operation(o, status, text);
    } else if (before->waiting && ms > 0) {
        sleep_us(SHARED_US);
    } else if (!before->waiting && !before->earlier) {
        step_operation(before, ms);
        if (before->phase == PHASE_ENDED && before->orphan)
            operation_free(before);
    }
}

/* The ranks have told each other their rows. */
static void begin_sized(struct operation *o)
{
    char *text = NULL;
    int status;

    o->waiting = true; /* an exception in rows_answered() may let other threads run */
    status = rows_answered(o, &text);
    o->waiting = false;
    if (status != HVD_SUCCESS) {
        end_operation(o, status > 0 ? HVD_SUCCESS : status, text);
        return;
    }
    o->waiting = true;
    Py_BEGIN_ALLOW_THREADS status = rows_begin(o);
    text = copy_sentence(status);
    Py_END_ALLOW_THREADS o->waiting = false;
    if (status != HVD_SUCCESS) {
        end_operation(o, status, text);
        return;
    }
    o->phase = PHASE_RUNNING;
    move_to(o->orphan ? &orphans : &owned, o);
}

static int wait_or_poll(hvd_handle handle, unsigned ms)
{
    int ended = ms > 0 ? 1 : hvd_poll(handle);

    if (ended <= 0)
        return ended == 0 ? HVD_ERR_TIMEOUT : ended;
    return hvd_wait_for(handle, ms > 0 ? ms : HURRY_MS); /* a result that comes by pieces takes its time */
}

/* Waits for the next phase for at most that time. No other thread waits for the operation. */
static void step_operation(struct operation *o, unsigned ms)
{
    hvd_handle handle = o->handle;
    char *text;
    int status;

    o->waiting = true;
    if (o->phase == PHASE_HELD) {
        step_held(o, ms);
        o->waiting = false;
        return;
    }
    Py_BEGIN_ALLOW_THREADS status = wait_or_poll(handle, ms);
    text = status == HVD_ERR_TIMEOUT ? NULL : copy_sentence(status);
    Py_END_ALLOW_THREADS o->waiting = false;
    if (status == HVD_ERR_TIMEOUT)
        return;
    if (status == HVD_SUCCESS && o->phase == PHASE_SIZING)
        begin_sized(o);
    else
        end_operation(o, status, text);
}

bool operation_poll(struct operation *o)
{
    if (o->phase != PHASE_ENDED && !o->waiting)
        step_operation(o, 0);
    return o->phase == PHASE_ENDED;
}

/* Polls the oldest operations of the list, which become its last. Other threads may change the list
 * meanwhile. */
static void poll_list(struct link *list, size_t most)
{
    size_t n = 0;

    for (struct link *each = list->after; each != list && n < most; each = each->after)
        n++;
    for (; n > 0 && !is_empty(list); n--) {
        struct operation *o = first_of(list);
        move_to(list, o);
        if (operation_poll(o) && o->orphan)
            operation_free(o);
    }
}

static void reap_some(size_t most)
{
    poll_list(&held, most);
    poll_list(&sizing, most);
    poll_list(&orphans, most);
}

void operations_reap(void)
{
    reap_some(SIZE_MAX);
}

void operations_settle(void)
{
    poll_list(&owned, SIZE_MAX);
}

size_t operations_pending(void)
{
    return pending;
}

double read_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Those of a list that the library still works on. */
static size_t count_unended(const struct link *list)
{
    size_t n = 0;

    for (const struct link *each = list->after; each != list; each = each->after) {
        const struct operation *o = (const struct operation *)each;
        n += o->phase != PHASE_RUNNING || o->waiting || hvd_poll(o->handle) == 0;
    }
    return n;
}

size_t operations_under_way(void)
{
    return count_unended(&owned) + count_unended(&orphans) + count_unended(&sizing) + count_unended(&held);
}

static int raise_timeout(const struct operation *o, double seconds)
{
    char text[400];

    snprintf(text, sizeof text, "tensor \"%s\": the operation is pending after %g s", o->call.name, seconds);
    return raise_status(HVD_ERR_TIMEOUT, text);
}

/* Of a wait with `left` seconds; below 0: without a limit. */
static unsigned slice_ms(const struct operation *o, double left, bool has_limit)
{
    bool others = !is_empty(&orphans) || !is_empty(&held) ||
                  (!is_empty(&sizing) && (first_of(&sizing) != o || sizing.before != &o->link));
    unsigned slice = others ? HURRY_MS : SLICE_MS;

    return has_limit && left * 1000 < slice ? (unsigned)ceil(left > 0 ? left * 1000 : 0) : slice;
}

int operation_wait(struct operation *o, double seconds)
{
    bool has_limit = seconds >= 0;
    double until = has_limit ? read_clock() + seconds : 0, left = seconds;

    while (o->phase != PHASE_ENDED) {
        if (o->waiting && hvd_is_initialized() == HVD_ERR_FORKED)
            o->waiting = false; /* the thread that waited is the parent's */
        if (o->waiting)
            sleep_us(SHARED_US);
        else
            step_operation(o, slice_ms(o, left, has_limit));
        if (o->phase == PHASE_ENDED)
            break;
        if (PyErr_CheckSignals() != 0)
            return -1;
        if (has_limit && (left = until - read_clock()) <= 0)
            return raise_timeout(o, seconds);
        operations_reap();
    }
    return 0;
}

PyObject *operation_result(struct operation *o)
{
    if (o->status != HVD_SUCCESS) {
        raise_status(o->status, o->text ? o->text : "");
        return NULL;
    }
    if (o->kind == KIND_JOIN)
        return PyLong_FromLong(o->last_rank);
    return Py_NewRef(o->result ? o->result : Py_None);
}

void operation_drop(struct operation *o)
{
    o->orphan = true;
    if (operation_poll(o)) {
        if (!o->waiting) /* else the thread that has ended it frees it */
            operation_free(o);
    } else if (o->phase == PHASE_RUNNING) {
        move_to(&orphans, o);
    }
}
