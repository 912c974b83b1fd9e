#include "collectives/engine/autotune.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/backends/backend.h"

#define STEP_FIRST   2    /* powers of two */
#define GAIN_LEAST   0.02 /* less is no gain, however quiet it is */
#define CHECKS       2    /* samples kept for the end */
#define CHECK_NOISES 3    /* a larger difference is no accident */

const struct autotune_range autotune_range[AUTOTUNE_PARAMETERS] = {
    [AUTOTUNE_EAGER_BYTES] = {"eager_bytes", 1u << 10, 256u << 10, 1},
    [AUTOTUNE_PIECE_BYTES] = {"piece_bytes", 16u << 10, 1u << 20, -1},
    [AUTOTUNE_IN_FLIGHT] = {"in_flight", 1, BACKEND_IN_FLIGHT_MAX, 1},
    [AUTOTUNE_FUSION_BYTES] = {"fusion_bytes", 64u << 10, 64u << 20, 1},
};

const struct autotune_values autotune_standard = {{[AUTOTUNE_EAGER_BYTES] = 16u << 10,
                                                   [AUTOTUNE_PIECE_BYTES] = 256u << 10,
                                                   [AUTOTUNE_IN_FLIGHT] = 4,
                                                   [AUTOTUNE_FUSION_BYTES] = 1u << 20}};

/* The purpose of the next sample. */
enum phase { SEARCH, CHECK_STANDARD, CHECK_BEST, ENDED };

/* The steps along an axis: one direction, the other or further on in the one that has helped, then a value
 * between. */
enum stage { FIRST, SECOND, BETWEEN };

/* How often a tensor came in the measurement of that number. */
struct seen {
    uint32_t measurement, times;
};

struct autotune {
    struct autotune_config config;
    struct autotune_values wanted;
    struct autotune_sample best, standard; /* the second: as measured in the end */
    enum phase phase;
    uint32_t samples;
    struct autotune_sample *tried; /* [samples] */

    uint32_t axis, step;
    int direction;
    enum stage stage; /* of the axis */
    bool moved;       /* some axis has helped with this step */

    struct seen *seen;
    uint32_t measurement;
    bool measuring;
    uint64_t began, bytes;
    uint32_t scores;
    double score[AUTOTUNE_MEASUREMENTS];
};

bool autotune_valid(const struct autotune_values *values)
{
    for (int i = 0; i < AUTOTUNE_SHARED; i++) {
        uint32_t v = values->of[i];
        if (v < autotune_range[i].least || v > autotune_range[i].most || (v & (v - 1)))
            return false;
    }
    return true;
}

struct autotune *autotune_new(const struct autotune_config *config, struct err *e)
{
    struct autotune *a = calloc(1, sizeof *a);
    if (a) {
        a->config = *config;
        a->wanted = a->best.values = config->first;
        a->step = STEP_FIRST;
        a->direction = autotune_range[0].first;
        a->seen = calloc(config->tensors, sizeof *a->seen);
        a->tried = calloc(config->samples, sizeof *a->tried);
    }
    if (a && a->seen && a->tried)
        return a;
    autotune_free(a);
    err_set(e, ERR_MEMORY, "no memory to tune for %u tensors", config->tensors);
    return NULL;
}

void autotune_free(struct autotune *a)
{
    if (!a)
        return;
    free(a->seen);
    free(a->tried);
    free(a);
}

/* ---- search -------------------------------------------------------------------------------------------- */

static bool was_tried(const struct autotune *a, const struct autotune_values *values)
{
    for (uint32_t i = 0; i < a->samples; i++)
        if (memcmp(&a->tried[i].values, values, sizeof *values) == 0)
            return true;
    return false;
}

/* `step` powers of two from the best along the axis, or as far as the range goes. */
static struct autotune_values find_neighbour(const struct autotune *a)
{
    struct autotune_values v = a->best.values;
    const struct autotune_range *r = &autotune_range[a->axis];
    uint64_t up = (uint64_t)v.of[a->axis] << a->step, down = v.of[a->axis] >> a->step;
    v.of[a->axis] = a->direction > 0 ? (uint32_t)(up < r->most ? up : r->most)
                                     : (uint32_t)(down > r->least ? down : r->least);
    return v;
}

/* Of what was tried along the axis through the best, the nearest on one side of `from`. */
static const struct autotune_sample *find_nearest(const struct autotune *a, uint32_t from, int side)
{
    const struct autotune_sample *found = NULL;
    for (uint32_t i = 0; i < a->samples; i++) {
        struct autotune_values v = a->tried[i].values;
        uint32_t at = v.of[a->axis], known = found ? found->values.of[a->axis] : 0;
        v.of[a->axis] = a->best.values.of[a->axis];
        if (memcmp(&v, &a->best.values, sizeof v) != 0 || (side < 0 ? at >= from : at <= from))
            continue;
        if (!found || (side < 0 ? at > known : at < known))
            found = &a->tried[i];
    }
    return found;
}

/* Time for a byte more than with the best, for each power of two between them; *x is their number. */
static double slope_of(const struct autotune *a, const struct autotune_sample *s, int *x)
{
    *x = __builtin_ctz(s->values.of[a->axis]) - __builtin_ctz(a->best.values.of[a->axis]);
    return (1 / s->score - 1 / a->best.score) / *x;
}

/* The value of least time, estimated from the best and two others along the axis: the vertex of the parabola
 * through the three, when it is among them. */
static bool vertex_of(const struct autotune *a, struct autotune_values *v)
{
    uint32_t here = a->best.values.of[a->axis];
    const struct autotune_sample *s[2] = {find_nearest(a, here, -1), find_nearest(a, here, 1)};
    for (int i = 0; i < 2; i++)
        if (!s[i] && s[1 - i])
            s[i] = find_nearest(a, s[1 - i]->values.of[a->axis], i ? -1 : 1);
    if (!s[0] || !s[1] || !(s[0]->score > 0) || !(s[1]->score > 0) || !(a->best.score > 0))
        return false;
    int x[2];
    double first = slope_of(a, s[0], &x[0]), second = slope_of(a, s[1], &x[1]);
    double bend = (first - second) / (x[0] - x[1]), at = (x[0] - first / bend) / 2;
    int low = x[0] < 0 ? x[0] : 0, high = x[1] > 0 ? x[1] : 0;
    if (!(bend > 0) || at < low || at > high)
        return false;
    int steps = (int)(at + (at < 0 ? -0.5 : 0.5));
    *v = a->best.values;
    v->of[a->axis] = steps > 0 ? here << steps : here >> -steps;
    return true;
}

/* The next stage, the next axis, half the step. false: there is nothing left. */
static bool turn_direction(struct autotune *a)
{
    if (a->stage != BETWEEN) {
        a->direction = -a->direction;
        a->stage++;
        return true;
    }
    if (++a->axis == AUTOTUNE_PARAMETERS) {
        a->axis = 0;
        a->step = a->moved ? a->step : a->step / 2;
        a->moved = false;
    }
    a->stage = FIRST;
    a->direction = autotune_range[a->axis].first;
    return a->step > 0;
}

static bool propose_values(struct autotune *a)
{
    if (a->samples + CHECKS >= a->config.samples)
        return false;
    do {
        if (a->config.fixed[a->axis])
            continue;
        bool any = true;
        if (a->stage == BETWEEN)
            any = vertex_of(a, &a->wanted);
        else
            a->wanted = find_neighbour(a);
        if (any && !was_tried(a, &a->wanted))
            return true;
    } while (turn_direction(a));
    return false;
}

static bool is_better(const struct autotune_sample *a, const struct autotune_sample *b, double noises)
{
    double noise = noises * (a->noise > b->noise ? a->noise : b->noise);
    return a->score - b->score > (noise > GAIN_LEAST * b->score ? noise : GAIN_LEAST * b->score);
}

static void end_search(struct autotune *a)
{
    a->phase = ENDED;
    a->wanted = a->best.values;
}

static void search_further(struct autotune *a, const struct autotune_sample *s)
{
    bool more = true;
    if (s->number == 1) {
        a->best = *s;
    } else if (is_better(s, &a->best, 1)) {
        a->best = *s;
        a->moved = true;
        if (a->stage == FIRST)
            a->stage = SECOND; /* on in this direction */
    } else {
        more = turn_direction(a);
    }
    if (more && propose_values(a))
        return;
    if (memcmp(&a->best.values, &a->config.first, sizeof a->config.first) == 0 ||
        a->samples + CHECKS > a->config.samples) {
        end_search(a);
        return;
    }
    a->phase = CHECK_STANDARD;
    a->wanted = a->config.first;
}

static void take_sample(struct autotune *a, const struct autotune_sample *s)
{
    a->tried[a->samples - 1] = *s;
    switch (a->phase) {
    case SEARCH:
        search_further(a, s);
        break;
    case CHECK_STANDARD:
        a->standard = *s;
        a->phase = CHECK_BEST;
        a->wanted = a->best.values;
        break;
    case CHECK_BEST:
        a->best = is_better(s, &a->standard, CHECK_NOISES) ? *s : a->standard;
        end_search(a);
        break;
    case ENDED:
        break;
    }
}

/* ---- samples ------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(double *values)
{
    qsort(values, AUTOTUNE_MEASUREMENTS, sizeof *values, by_value);
    return values[AUTOTUNE_MEASUREMENTS / 2];
}

static void begin_sample(struct autotune *a, uint64_t now)
{
    a->measuring = true;
    a->measurement++;
    a->began = now;
    a->bytes = 0;
}

/* A measurement is complete. true: a sample too. */
static bool take_measurement(struct autotune *a, uint64_t now, struct autotune_sample *s)
{
    double us = (double)(now > a->began ? now - a->began : 1) / 1000;
    if (a->config.warmup > 0) {
        a->config.warmup--;
        return false;
    }
    a->score[a->scores++] = (double)a->bytes / us;
    if (a->scores < AUTOTUNE_MEASUREMENTS)
        return false;
    a->scores = 0;
    a->measuring = false;
    *s = (struct autotune_sample){.number = ++a->samples, .values = a->wanted, .score = median_of(a->score)};
    for (int i = 0; i < AUTOTUNE_MEASUREMENTS; i++)
        a->score[i] = a->score[i] > s->score ? a->score[i] - s->score : s->score - a->score[i];
    s->noise = median_of(a->score);
    return true;
}

/* The operation that ends a measurement is the first of the next one: each has whole steps. */
bool autotune_saw(struct autotune *a, uint32_t tensor, uint64_t bytes, uint64_t now,
                  struct autotune_sample *sample)
{
    if (a->phase == ENDED || tensor >= a->config.tensors)
        return false;
    if (!a->measuring)
        begin_sample(a, now);
    struct seen *seen = &a->seen[tensor];
    if (seen->measurement == a->measurement && seen->times >= a->config.steps) {
        if (take_measurement(a, now, sample)) {
            take_sample(a, sample);
            return true;
        }
        begin_sample(a, now);
    }
    if (seen->measurement != a->measurement)
        *seen = (struct seen){a->measurement, 0};
    seen->times++;
    a->bytes += bytes;
    return false;
}

const struct autotune_values *autotune_wanted(const struct autotune *a)
{
    return &a->wanted;
}

const struct autotune_sample *autotune_best(const struct autotune *a)
{
    return &a->best;
}

bool autotune_ended(const struct autotune *a)
{
    return a->phase == ENDED;
}
