#include "collectives/engine/tuning.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/engine/agree/host_tree.h"
#include "collectives/engine/autotune.h"
#include "collectives/engine/names.h"
#include "collectives/engine/run/run.h"
#include "collectives/kernels/dtype.h"
#include "common/base/cursor.h"
#include "common/base/log.h"

#define MESSAGE_SIZE (16 + 4 * AUTOTUNE_SHARED)
#define PENDING_MAX  4096 /* changes that a host has not come to yet */

/* Other values, from an entry on. */
struct change {
    struct change *next;
    uint64_t from;
    struct autotune_values values;
};

struct tuning {
    struct autotune *autotune; /* host 0's; NULL: another host */
    FILE *log;
    struct autotune_values values; /* of the last entry that was taken */
    uint64_t taken;                /* its number */
    uint64_t last_from;            /* of the last change known */
    struct change *first, *last;   /* not come to yet */
    uint32_t pending;
};

/* ---- the log ------------------------------------------------------------------------------------------- */

static void write_values(FILE *log, const char *what, const struct autotune_sample *s)
{
    fputs(what, log);
    for (int i = 0; i < AUTOTUNE_PARAMETERS; i++)
        fprintf(log, ",%u", s->values.of[i]);
    fprintf(log, ",%.3f\n", s->score);
}

static void open_log(struct engine *engine, const char *path)
{
    struct tuning *t = engine->tuning;
    struct err e = ERR_INIT;
    t->log = fopen(path, "we");
    if (!t->log) {
        err_sys(&e, errno, "no log of autotune: cannot write %s", path);
        engine_notice(engine, LOG_WARNING, e.text);
        return;
    }
    setvbuf(t->log, NULL, _IOLBF, BUFSIZ);
    fputs("sample", t->log);
    for (int i = 0; i < AUTOTUNE_PARAMETERS; i++)
        fprintf(t->log, ",%s", autotune_range[i].name);
    fputs(",score\n", t->log);
    if (engine->hosts == 1)
        fputs(
            "# one host: nothing to tune, how its ranks share memory depends on sizes and placement alone\n",
            t->log);
}

static void log_sample(const struct tuning *t, const struct autotune_sample *s)
{
    char number[16];
    snprintf(number, sizeof number, "%u", s->number);
    if (t->log)
        write_values(t->log, number, s);
    if (t->log && autotune_ended(t->autotune))
        write_values(t->log, "best", autotune_best(t->autotune));
}

/* The job is over, and so is what there is to measure. */
static void end_log(struct tuning *t)
{
    if (!t->log)
        return;
    fputs("# the job has ended before autotune\n", t->log);
    write_values(t->log, "best", autotune_best(t->autotune));
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static struct autotune_values standard_of(const struct engine *engine)
{
    struct autotune_values values = autotune_standard;
    values.of[AUTOTUNE_FUSION_BYTES] =
        engine->options.fusion_bytes < UINT32_MAX ? (uint32_t)engine->options.fusion_bytes : UINT32_MAX;
    return values;
}

static int start_tuning(struct engine *engine, const Hvd__EngineConfig *session, struct err *e)
{
    const Hvd__EngineTuning *options = session->tuning;
    if (!options || !options->autotune)
        return 0;
    struct autotune_config config = {.warmup = options->autotune_warmup_samples,
                                     .steps = options->autotune_steps_per_sample,
                                     .samples = options->autotune_samples,
                                     .tensors = SHM_SLOTS,
                                     .first = standard_of(engine)};
    if (config.steps == 0 || config.samples == 0 || config.samples > PENDING_MAX)
        return err_set(e, ERR_PROTOCOL, "the session's configuration: autotune with %u samples",
                       config.samples);
    struct tuning *t = engine->tuning = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for autotune");
    t->values = config.first;
    if (engine->self != 0)
        return 0;
    config.fixed[AUTOTUNE_FUSION_BYTES] = options->fusion_given || engine->options.flat;
    t->autotune = autotune_new(&config, e);
    if (!t->autotune)
        return -1;
    if (*options->autotune_log)
        open_log(engine, options->autotune_log);
    return 0;
}

static void free_tuning(struct engine *engine)
{
    struct tuning *t = engine->tuning;
    if (!t)
        return;
    if (t->log)
        fclose(t->log);
    for (struct change *c; (c = t->first);) {
        t->first = c->next;
        free(c);
    }
    autotune_free(t->autotune);
    free(t);
    engine->tuning = NULL;
}

/* Another epoch: its list begins with the standard values on every host. */
static void reset_tuning(struct engine *engine)
{
    struct tuning *t = engine->tuning;
    if (!t)
        return;
    for (struct change *c; (c = t->first);) {
        t->first = c->next;
        free(c);
    }
    t->pending = 0;
    t->taken = t->last_from = 0;
    t->values = standard_of(engine);
}

/* ---- values of an entry -------------------------------------------------------------------------------- */

const struct autotune_values *tuning_of_entry(struct engine *engine, const struct set *set, uint64_t number)
{
    struct tuning *t = engine->tuning;
    if (!t || set != engine->sets.world || number == 0)
        return &autotune_standard;
    t->taken = number;
    for (struct change *c; (c = t->first) && c->from <= number;) {
        t->values = c->values;
        t->first = c->next;
        t->pending--;
        free(c);
    }
    return &t->values;
}

uint32_t tuning_runs_ahead(const struct engine *engine, const struct set *set)
{
    const struct tuning *t = engine->tuning;
    return (t && set == engine->sets.world ? &t->values : &autotune_standard)->of[AUTOTUNE_IN_FLIGHT];
}

static int add_change(struct tuning *t, uint64_t from, const struct autotune_values *values, struct err *e)
{
    struct change *c = t->pending < PENDING_MAX ? malloc(sizeof *c) : NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for the values that autotune wants");
    *c = (struct change){NULL, from, *values};
    *(t->first ? &t->last->next : &t->first) = c;
    t->last = c;
    t->pending++;
    t->last_from = from;
    return 0;
}

/* ---- between hosts ------------------------------------------------------------------------------------- */

static void send_to_children(struct engine *engine, const void *message, size_t size)
{
    uint64_t child = (uint64_t)engine->self * HOST_TREE_RADIX + 1, end = child + HOST_TREE_RADIX;
    struct err e = ERR_INIT;
    for (; child < end && child < engine->hosts; child++)
        if (links_send_control(engine->peers.links, (uint32_t)child, message, size, &e) != 0)
            return; /* the link is lost; its own event says so */
}

/* Every entry that host 0 has sent it has taken too (remote_progress), so what comes next is later. */
static void change_all(struct engine *engine)
{
    struct tuning *t = engine->tuning;
    const struct autotune_values *values = autotune_wanted(t->autotune);
    uint8_t message[MESSAGE_SIZE] = {PEER_TUNING};
    struct writer w = writer_of(message + 2, sizeof message - 2);
    struct err e = ERR_INIT;
    write_u16(&w, AUTOTUNE_SHARED);
    write_u32(&w, engine->epoch);
    write_u64(&w, t->taken + 1);
    for (int i = 0; i < AUTOTUNE_SHARED; i++)
        write_u32(&w, values->of[i]);
    execution_list_fuse(readiness_list(engine->sets.world->readiness), values->of[AUTOTUNE_FUSION_BYTES]);
    if (add_change(t, t->taken + 1, values, &e) != 0)
        engine_out_of_memory(engine, e.text);
    else
        send_to_children(engine, message, sizeof message);
}

static int receive_tuning(struct engine *engine, uint32_t from, const void *data, size_t size, struct err *e)
{
    struct tuning *t = engine->tuning;
    struct reader r = reader_of(data, size);
    struct autotune_values values = autotune_standard;
    read_bytes(&r, 2);
    uint16_t count = read_u16(&r);
    uint32_t epoch = read_u32(&r);
    uint64_t number = read_u64(&r);
    for (int i = 0; i < AUTOTUNE_SHARED; i++)
        values.of[i] = read_u32(&r);
    if (r.bad || r.left > 0 || count != AUTOTUNE_SHARED || !autotune_valid(&values))
        return err_set(e, ERR_PROTOCOL, "a malformed message of autotune");
    if (!t || engine->self == 0 || from != (engine->self - 1) / HOST_TREE_RADIX)
        return err_set(e, ERR_PROTOCOL, "host %u decides what only host 0 may", from);
    if (epoch != engine->epoch)
        return 0;
    if (number <= t->taken || number < t->last_from)
        return err_set(e, ERR_PROTOCOL, "autotune wants other values from entry %llu on, after %llu",
                       (unsigned long long)number, (unsigned long long)t->taken);
    if (add_change(t, number, &values, e) != 0)
        return -1;
    send_to_children(engine, data, size);
    return 0;
}

/* ---- measurement --------------------------------------------------------------------------------------- */

void tuning_settled(struct engine *engine, const struct run *run, uint64_t now)
{
    struct tuning *t = engine->tuning;
    const struct tensor_op *op = &run->view->op;
    if (!t || !t->autotune || run->set != engine->sets.world)
        return;
    if (!t->first && memcmp(autotune_wanted(t->autotune), &t->values, sizeof t->values) != 0)
        change_all(engine); /* a new epoch began with the standard */
    if (autotune_ended(t->autotune))
        return;
    if (op->kind == SHM_SHUTDOWN)
        end_log(t);
    if (memcmp(&run->values, autotune_wanted(t->autotune), sizeof run->values) != 0 || !op_moves(op->kind))
        return;
    uint32_t slot = names_find(engine, run->set, run->entry.desc.name);
    struct autotune_sample sample;
    if (!autotune_saw(t->autotune, slot, op->count * dtype_size(op->dtype), now, &sample))
        return;
    log_sample(t, &sample);
    if (memcmp(autotune_wanted(t->autotune), &t->values, sizeof t->values) != 0)
        change_all(engine);
    if (autotune_ended(t->autotune))
        log_info("autotune has ended after %u samples", sample.number);
}

const struct engine_part tuning_part = {.start = start_tuning,
                                        .epoch_end = reset_tuning,
                                        .messages = 1u << PEER_TUNING,
                                        .message = receive_tuning,
                                        .free = free_tuning};
