/* One table makes the parser, its range checks and --help. */
#include "options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { STRING, INTEGER, REAL, FLAG };

struct option {
    const char *name;
    enum kind kind;
    size_t offset;
    const char *fallback; /* the default, as it would be typed; NULL: none */
    double low, high;
    const char *help;
};

#define AT(field) offsetof(struct options, field)

static const struct option table[] = {
    {"--data", STRING, AT(data), "/usr/share/common-licenses/GPL-3", 0, 0, "FILE: the text to learn"},
    {"--steps", INTEGER, AT(steps), "400", 1, 1e9, "N: train until step N"},
    {"--global-batch", INTEGER, AT(global_batch), "256", 1, 65536, "N: characters a step, over all ranks"},
    {"--seed", INTEGER, AT(seed), "1", 0, 9e15, "N: decides the start state and every sample"},
    {"--hidden", INTEGER, AT(hidden), "128", 1, 4096, "N: width of the hidden layer"},
    {"--context", INTEGER, AT(context), "8", 1, 256, "N: characters that the next one is guessed from"},
    {"--lr", REAL, AT(lr), "0.003", 1e-9, 10, "X: Adam's learning rate"},
    {"--checkpoint", STRING, AT(checkpoint), NULL, 0, 0, "FILE: resume from it when it exists; write it"},
    {"--checkpoint-every", INTEGER, AT(checkpoint_every), "100", 1, 1e9, "N: steps between two writes"},
    {"--elastic", FLAG, AT(elastic), NULL, 0, 0, "go on when ranks die, come and go (hvdrun --min-np)"},
    {"--help", FLAG, AT(help), NULL, 0, 0, "this list"},
};
#define OPTIONS (sizeof table / sizeof table[0])

int fault_set(struct fault *f, const char *fmt, ...)
{
    va_list ap;

    if (f->text[0] != '\0')
        return -1;
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    return -1;
}

static int set_number(void *field, const struct option *opt, const char *value, struct fault *f)
{
    char *end = NULL;
    double real = 0;
    long long integer = 0;

    errno = 0;
    if (opt->kind == INTEGER) {
        integer = strtoll(value, &end, 10);
        real = (double)integer;
    } else {
        real = strtod(value, &end);
    }
    if (end == value || *end != '\0' || errno != 0 || !(real >= opt->low && real <= opt->high))
        return fault_set(f, "%s takes %s from %.10g to %.10g, not '%.100s'", opt->name,
                         opt->kind == INTEGER ? "a whole number" : "a number", opt->low, opt->high, value);
    if (opt->kind == INTEGER)
        *(int64_t *)field = integer;
    else
        *(double *)field = real;
    return 0;
}

static int set_value(struct options *o, const struct option *opt, const char *value, struct fault *f)
{
    void *field = (char *)o + opt->offset;

    switch (opt->kind) {
    case STRING:
        if (value[0] == '\0')
            return fault_set(f, "%s needs a file name", opt->name);
        *(const char **)field = value;
        return 0;
    case FLAG:
        *(bool *)field = true;
        return 0;
    default:
        return set_number(field, opt, value, f);
    }
}

static const struct option *find(const char *name, size_t len)
{
    for (size_t i = 0; i < OPTIONS; i++)
        if (strlen(table[i].name) == len && memcmp(table[i].name, name, len) == 0)
            return &table[i];
    return NULL;
}

int train_options_parse(int argc, char **argv, struct options *o, struct fault *f)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < OPTIONS; i++)
        if (table[i].fallback != NULL && set_value(o, &table[i], table[i].fallback, f) != 0)
            return -1;
    for (int i = 1; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        const struct option *opt =
            find(argv[i], equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]));
        const char *value = equals != NULL ? equals + 1 : NULL;

        if (opt == NULL)
            return fault_set(f, "unknown option '%.100s' (--help lists them)", argv[i]);
        if (opt->kind == FLAG && value != NULL)
            return fault_set(f, "%s takes no value", opt->name);
        if (opt->kind != FLAG && value == NULL) {
            if (++i == argc)
                return fault_set(f, "%s needs a value", opt->name);
            value = argv[i];
        }
        if (set_value(o, opt, value, f) != 0)
            return -1;
    }
    return 0;
}

void train_options_help(void)
{
    printf("usage: hvdrun -np N train [option ...]\n"
           "Trains a character language model; the loss of every step is the same for any number of ranks.\n"
           "Rank 0 prints each of the first 100 steps, then every 50th and the last.\n\n");
    for (size_t i = 0; i < OPTIONS; i++) {
        printf("  %-19s %s", table[i].name, table[i].help);
        if (table[i].fallback != NULL)
            printf(" (%s)", table[i].fallback);
        printf("\n");
    }
}
