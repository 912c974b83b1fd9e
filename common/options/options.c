/* The parser of options.h.
 *
 * It walks over the words once and notes for each row of the table where its value came from and how the user
 * spelled it, so that a message names the option as it was typed. Then variables, and after them a file, fill
 * the rows that are still open (options_sources.c). A value is looked at by exactly one function for its
 * type, whatever it came from; nothing is stored before the whole value was found right.
 *
 * Errors: an unknown word (the nearest flag is suggested), a value that is missing, empty, no number, out of
 * range or not among the words, and two options that exclude one another. Then the lists made so far are
 * freed. */
#include "common/options/options.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/options/options_table.h"

static bool takes_value(const struct option_spec *spec)
{
    return spec->type != OPTION_FLAG && spec->type != OPTION_ACTION && !option_is_optional(spec);
}

/* ---- values -------------------------------------------------------------------------------------------- */

static int bad_value(const struct option_spec *spec, struct option_origin from, const char *value,
                     struct err *e)
{
    char wanted[OPTION_WANTED_MAX];
    option_wanted(spec, wanted, sizeof wanted);
    if (!*value)
        return err_set(e, ERR_USAGE, "%.*s: the value is empty; it must be %s", (int)from.len, from.name,
                       wanted);
    return err_set(e, ERR_USAGE, "%.*s: '%.*s' is not %s", (int)from.len, from.name, OPTION_SHOWN, value,
                   wanted);
}

int option_word_index(const char *words, const char *value)
{
    size_t len = strlen(value);
    for (int i = 0; words && len; i++) {
        size_t n = strcspn(words, "|");
        if (n == len && strncasecmp(words, value, n) == 0)
            return i;
        words = words[n] ? words + n + 1 : NULL;
    }
    return -1;
}

/* Digits, and for `decimals` > 0 a point and that many more at most; the result is scaled by 10^decimals. */
static int read_number(const char *text, int decimals, int64_t *number)
{
    const char *p = text;
    int64_t n = 0;
    int left = -1; /* decimals still allowed, once the point was seen */
    for (; *p; p++) {
        if (*p == '.' && left < 0 && decimals && p > text && p[1]) {
            left = decimals;
            continue;
        }
        if (*p < '0' || *p > '9' || left == 0 || n > (INT64_MAX - 9) / 10)
            return -1;
        n = n * 10 + (*p - '0');
        left -= left > 0;
    }
    for (left = left < 0 ? decimals : left; left > 0; left--)
        if (__builtin_mul_overflow(n, 10, &n))
            return -1;
    *number = n;
    return p > text ? 0 : -1;
}

static int set_number(const struct option_spec *spec, void *field, const char *value)
{
    int decimals = spec->type == OPTION_INTEGER ? 0 : 3;
    int64_t scale = decimals ? 1000 : 1;
    int64_t number;
    int word = option_word_index(spec->words, value);
    if (word >= 0)
        number = -1 - word;
    else if (read_number(value, decimals, &number) || number < spec->min * scale ||
             number > spec->max * scale)
        return -1;
    *(int64_t *)field = number;
    return 0;
}

/* "LOW,HIGH", or "LOW HIGH". LOW alone is what the first word of two says: HIGH is -1 until the second has
 * come. */
static int set_range(const struct option_spec *spec, struct option_range *field, const char *value)
{
    char low[32];
    size_t len = strcspn(value, ", ");
    const char *rest = value[len] ? value + len + 1 : NULL;
    struct option_range range = {.high = -1};
    if (len >= sizeof low)
        return -1;
    memcpy(low, value, len);
    low[len] = '\0';
    if (read_number(low, 3, &range.low) || (rest && read_number(rest, 3, &range.high)))
        return -1;
    bool in_range = range.low >= spec->min * 1000 && range.low <= spec->max * 1000 &&
                    (!rest || (range.high >= range.low && range.high <= spec->max * 1000));
    if (!in_range)
        return -1;
    *field = range;
    return 0;
}

/* The second of two words. */
static int set_high(const struct option_spec *spec, struct option_range *field, const char *value)
{
    int64_t high;
    if (!value || read_number(value, 3, &high) || high < field->low || high > spec->max * 1000)
        return -1;
    field->high = high;
    return 0;
}

static int set_flag(bool *field, const char *value, bool opposite)
{
    int word = option_word_index("0|1|false|true|no|yes|off|on", value);
    if (word < 0)
        return -1;
    *field = (word % 2 == 1) != opposite;
    return 0;
}

static int set_choice(const struct option_spec *spec, int *field, const char *value)
{
    int word = option_word_index(spec->words, value);
    if (word < 0)
        return -1;
    *field = word;
    return 0;
}

static int set_mode(const struct option_spec *spec, int *field, const char *value)
{
    if (set_choice(spec, field, value) == 0)
        return 0;
    bool on;
    if (set_flag(&on, value, false))
        return -1;
    *field = on;
    return 0;
}

/* Puts `value` at place `at`: sources are read from the strongest down, and the strongest shall be the last
 * in the list. The array grows when its length is a power of two. */
static int add_to_list(struct option_list *list, size_t at, const char *value, struct err *e)
{
    if ((list->count & (list->count - 1)) == 0) {
        size_t room = list->count ? list->count * 2 : 1;
        const char **more = reallocarray(list->item, room, sizeof *more);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory for the command line");
        list->item = more;
    }
    memmove(list->item + at + 1, list->item + at, (list->count - at) * sizeof *list->item);
    list->item[at] = value;
    list->count++;
    return 0;
}

static int set_value(struct parsing *p, const struct option_spec *spec, struct option_origin from,
                     const char *value, struct err *e)
{
    void *field = p->config + spec->offset;
    int bad = -1;
    switch (spec->type) {
    case OPTION_FLAG:
    case OPTION_ACTION:
        bad = set_flag(field, value, from.opposite);
        break;
    case OPTION_INTEGER:
    case OPTION_SECONDS:
    case OPTION_MILLISECONDS:
        bad = set_number(spec, field, value);
        break;
    case OPTION_RANGE:
        bad = from.half || strpbrk(value, ", ") ? set_range(spec, field, value) : -1;
        break;
    case OPTION_CHOICE:
        bad = set_choice(spec, field, value);
        break;
    case OPTION_MODE:
        bad = set_mode(spec, field, value);
        break;
    case OPTION_TEXT:
        bad = *value ? 0 : -1;
        if (!bad)
            *(const char **)field = value;
        break;
    case OPTION_LIST:
        if (*value)
            return add_to_list(field, p->added[spec - p->program->spec]++, value, e);
        break;
    }
    return bad ? bad_value(spec, from, value, e) : 0;
}

static void set_nothing(const struct option_spec *spec, void *field)
{
    switch (spec->type) {
    case OPTION_FLAG:
    case OPTION_ACTION:
        *(bool *)field = false;
        break;
    case OPTION_INTEGER:
    case OPTION_SECONDS:
    case OPTION_MILLISECONDS:
        *(int64_t *)field = 0;
        break;
    case OPTION_RANGE:
        *(struct option_range *)field = (struct option_range){0};
        break;
    case OPTION_CHOICE:
    case OPTION_MODE:
        *(int *)field = 0;
        break;
    case OPTION_TEXT:
        *(const char **)field = NULL;
        break;
    case OPTION_LIST:
        *(struct option_list *)field = (struct option_list){0};
        break;
    }
}

static int set_defaults(struct parsing *p, struct err *e)
{
    for (size_t i = 0; i < p->program->count; i++)
        set_nothing(&p->program->spec[i], p->config + p->program->spec[i].offset);
    for (size_t i = 0; i < p->program->count; i++) {
        const struct option_spec *spec = &p->program->spec[i];
        struct option_origin from = {.name = spec->flags, .len = strlen(spec->flags)};
        if (spec->default_text && set_value(p, spec, from, spec->default_text, e))
            return err_wrap(e, "the option table's own default");
    }
    return 0;
}

/* ---- finding an option --------------------------------------------------------------------------------- */

static int find_flag(const struct options_program *program, const char *word, size_t len)
{
    for (size_t i = 0; i < program->count; i++) {
        struct option_name flag = {0};
        while (option_next_name(program->spec[i].flags, &flag))
            if (flag.len == len && memcmp(flag.text, word, len) == 0)
                return (int)i;
    }
    return -1;
}

/* The row of a word such as -p22: a flag of one letter with its value attached. A slip in a long flag with
 * one dash (-prefix-timestmp) is not taken for one. */
static int find_attached(const struct options_program *program, const char *word)
{
    int i = find_flag(program, word, 2);
    if (word[1] == '-' || i < 0 || !takes_value(&program->spec[i]))
        return -1;
    struct option_name near = option_near_flag(program, word, strcspn(word, "="));
    return near.len > 2 && near.text[1] != '-' ? -1 : i;
}

static const struct option_refused *find_refused(const struct options_program *program, const char *word,
                                                 size_t len)
{
    for (const struct option_refused *r = program->refused; r && r->flags; r++) {
        struct option_name flag = {0};
        while (option_next_name(r->flags, &flag))
            if (flag.len == len && memcmp(flag.text, word, len) == 0)
                return r;
    }
    return NULL;
}

static int unknown_option(const struct options_program *program, const char *word, size_t len, struct err *e)
{
    struct option_name best = option_near_flag(program, word, len);
    const struct option_refused *refused = find_refused(program, word, len);
    if (refused) {
        err_set(e, ERR_USAGE, "%.*s: %s", (int)len, word, refused->why);
        return err_hint(e, "%s", refused->hint);
    }
    err_set(e, ERR_USAGE, "unknown option %.*s", (int)(len < OPTION_SHOWN ? len : OPTION_SHOWN), word);
    if (best.len)
        return err_hint(e, "did you mean %.*s?", (int)best.len, best.text);
    return err_hint(e, "%s --help lists the options", program->name);
}

/* The value of an option that was given without one: for a time its second word, else "1". */
static const char *left_out(const struct option_spec *spec)
{
    return spec->type == OPTION_SECONDS ? spec->words + strcspn(spec->words, "|") + 1 : "1";
}

/* ---- the words ----------------------------------------------------------------------------------------- */

/* The value of row `row` is the next word, unless that is an option itself. */
static const char *next_word(struct parsing *p, size_t row, struct option_origin from, const char *word,
                             struct err *e)
{
    bool option = word && word[0] == '-' && word[1] && find_flag(p->program, word, strcspn(word, "=")) >= 0;
    if (word && !option && strcmp(word, "--") != 0)
        return word;
    char wanted[OPTION_WANTED_MAX];
    option_wanted(&p->program->spec[row], wanted, sizeof wanted);
    err_set(e, ERR_USAGE, "%.*s needs a value: %s", (int)from.len, from.name, wanted);
    return NULL;
}

static bool is_exclusive(const struct option_spec *a, const struct option_spec *b)
{
    return a->exclusive && b->exclusive && strcmp(a->exclusive, b->exclusive) == 0;
}

/* Two options of one group in the same source exclude one another; the later-read source yields silently. */
static int check_exclusive(struct parsing *p, size_t row, struct option_origin from, struct err *e)
{
    const struct option_spec *spec = p->program->spec;
    for (size_t i = 0; i < p->program->count; i++) {
        if (i == row || p->source[i] != p->source[row] || !is_exclusive(&spec[i], &spec[row]))
            continue;
        return err_set(e, ERR_USAGE, "%.*s and %.*s both name %s; give one of them", (int)p->spelled[i].len,
                       p->spelled[i].name, (int)from.len, from.name, spec[row].exclusive);
    }
    return 0;
}

int option_store(struct parsing *p, size_t row, enum option_source source, struct option_origin from,
                 const char *value, struct err *e)
{
    if (p->source[row] != source)
        p->added[row] = 0;
    p->source[row] = source;
    p->spelled[row] = from;
    if (check_exclusive(p, row, from, e))
        return -1;
    return set_value(p, &p->program->spec[row], from, value, e);
}

bool option_is_decided(const struct parsing *p, size_t row, enum option_source source)
{
    const struct option_spec *spec = p->program->spec;
    for (size_t i = 0; i < p->program->count; i++)
        if (p->source[i] > source && (i == row || is_exclusive(&spec[i], &spec[row])))
            return spec[row].type != OPTION_LIST;
    return false;
}

static bool may_be_given(const struct options_program *program, int row)
{
    struct option_name flag = {0};
    while (option_next_name(program->only, &flag))
        if (find_flag(program, flag.text, flag.len) == row)
            return true;
    return !program->only;
}

/* The option at argv[*at]; steps over it and its value. */
static int parse_option(struct parsing *p, int argc, char *const argv[], int *at, struct err *e)
{
    const char *word = argv[(*at)++];
    struct option_origin from = {.name = word, .len = strcspn(word, "=")};
    const char *value = word[from.len] ? word + from.len + 1 : NULL;
    int row = find_flag(p->program, word, from.len);
    if (row < 0) {
        row = find_refused(p->program, word, from.len) ? -1 : find_attached(p->program, word);
        if (row < 0)
            return unknown_option(p->program, word, from.len, e);
        from.len = 2;
        value = word + 2;
    }
    if (!may_be_given(p->program, row))
        return err_set(e, ERR_USAGE, "%.*s %s", (int)from.len, from.name, p->program->only_why);
    const struct option_spec *spec = &p->program->spec[row];
    if (!takes_value(spec)) {
        if (value && !option_is_optional(spec))
            return err_set(e, ERR_USAGE, "%.*s takes no value", (int)from.len, from.name);
        p->stop = spec->type == OPTION_ACTION;
        return option_store(p, (size_t)row, OPTION_FROM_COMMAND_LINE, from, value ? value : left_out(spec),
                            e);
    }
    if (!value) {
        value = next_word(p, (size_t)row, from, *at < argc ? argv[*at] : NULL, e);
        if (!value)
            return -1;
        (*at)++;
    }
    bool pair = spec->type == OPTION_RANGE && !strpbrk(value, ", ");
    from.half = pair;
    if (option_store(p, (size_t)row, OPTION_FROM_COMMAND_LINE, from, value, e))
        return -1;
    if (!pair)
        return 0;
    const char *second = *at < argc ? argv[(*at)++] : NULL;
    void *field = p->config + spec->offset;
    return set_high(spec, field, second) ? bad_value(spec, from, second ? second : value, e) : 0;
}

static int parse_words(struct parsing *p, int argc, char *const argv[], int *operand, struct err *e)
{
    int at = argc > 0 ? 1 : 0;
    while (at < argc && !p->stop && argv[at][0] == '-' && argv[at][1]) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            break;
        }
        if (parse_option(p, argc, argv, &at, e))
            return -1;
    }
    *operand = at;
    return 0;
}

static int parse_file(struct parsing *p, struct err *e)
{
    struct settings *file = p->program->read_file ? p->program->read_file(p->config, e) : NULL;
    if (!file)
        return e->code ? -1 : 0;
    return option_parse_file(p, file, e);
}

int options_parse(const struct options_program *program, int argc, char *const argv[], char *const envp[],
                  void *config, int *operand, struct err *e)
{
    struct parsing p = {.program = program, .config = config};
    if (program->count > OPTIONS_MAX)
        return err_set(e, ERR_MEMORY, "the option table has more than %d rows", OPTIONS_MAX);
    if (set_defaults(&p, e) || parse_words(&p, argc, argv, operand, e) ||
        (!p.stop && (option_parse_variables(&p, envp, e) || parse_file(&p, e)))) {
        options_free(program, config);
        return -1;
    }
    bool *given = (void *)((char *)config + program->given_at);
    for (size_t i = 0; program->given_at && i < program->count; i++)
        given[i] = p.source[i] != OPTION_FROM_DEFAULT;
    return 0;
}

void options_free(const struct options_program *program, void *config)
{
    for (size_t i = 0; i < program->count; i++) {
        if (program->spec[i].type != OPTION_LIST)
            continue;
        struct option_list *list = (void *)((char *)config + program->spec[i].offset);
        free(list->item);
        free(list->text);
        *list = (struct option_list){0};
    }
}
