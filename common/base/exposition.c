#include "common/base/exposition.h"

#define EXACT 9007199254740992.0 /* integers are exact up to here */

void exposition_family(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void exposition_single(FILE *out, const char *name, const char *type, const char *help, double value)
{
    exposition_family(out, name, type, help);
    exposition_sample(out, name, value, NULL);
}

static void put_value(FILE *out, const char *value)
{
    for (size_t i = 0; i < EXPOSITION_VALUE_MAX && value[i]; i++) {
        if (value[i] == '\\' || value[i] == '"')
            fputc('\\', out);
        fputc(value[i] >= ' ' && value[i] < 0x7f ? value[i] : '?', out);
    }
}

void exposition_sample(FILE *out, const char *name, double value, const char *const *labels)
{
    fputs(name, out);
    for (size_t i = 0; labels && labels[i]; i += 2) {
        fprintf(out, "%c%s=\"", i ? ',' : '{', labels[i]);
        put_value(out, labels[i + 1]);
        fputc('"', out);
    }
    fputs(labels && labels[0] ? "} " : " ", out);
    if (value > -EXACT && value < EXACT && (double)(long long)value == value)
        fprintf(out, "%lld\n", (long long)value);
    else
        fprintf(out, "%.9g\n", value);
}
