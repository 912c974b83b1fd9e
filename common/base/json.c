#include "common/base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The length of the character at `s` when it is UTF-8 (no overlong form, surrogate or number above
 * U+10FFFF), else 0. The zero at the end of the text is no continuation, so nothing behind it is read. */
static size_t utf8_length(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
               (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f);
    return bad ? 0 : len;
}

void json_put_string(FILE *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    fputc('"', out);
    while (*s) {
        size_t len = utf8_length(s);
        if (len == 0)
            fputs("\xef\xbf\xbd", out);
        else if (*s == '"' || *s == '\\')
            fprintf(out, "\\%c", *s);
        else if (*s == '\n')
            fputs("\\n", out);
        else if (*s < 0x20 || *s == 0x7f)
            fprintf(out, "\\u%04x", *s);
        else
            fwrite(s, 1, len, out);
        s += len ? len : 1;
    }
    fputc('"', out);
}

static void new_line(const struct json *j)
{
    fprintf(j->out, "\n%*s", (int)(2 * j->depth), "");
}

/* Puts the comma, the line and the name before a value. */
static void put_name(struct json *j, const char *name)
{
    if (j->filled)
        fputc(',', j->out);
    if (j->depth > 0)
        new_line(j);
    j->filled = true;
    if (!name)
        return;
    json_put_string(j->out, name);
    fputs(": ", j->out);
}

void json_begin(struct json *j, FILE *out)
{
    *j = (struct json){.out = out};
}

static void open_level(struct json *j, const char *name, bool array)
{
    if (j->depth + 1 >= JSON_DEPTH_MAX)
        abort(); /* the shape is the program's, not the input's */
    put_name(j, name);
    fputc(array ? '[' : '{', j->out);
    j->depth++;
    j->arrays = (j->arrays & ~(UINT32_C(1) << j->depth)) | (uint32_t)array << j->depth;
    j->filled = false;
}

void json_object(struct json *j, const char *name)
{
    open_level(j, name, false);
}

void json_array(struct json *j, const char *name)
{
    open_level(j, name, true);
}

void json_end(struct json *j)
{
    bool array = j->arrays >> j->depth & 1;
    j->depth--;
    if (j->filled)
        new_line(j);
    fputc(array ? ']' : '}', j->out);
    j->filled = true;
    if (j->depth == 0)
        fputc('\n', j->out);
}

void json_text(struct json *j, const char *name, const char *text)
{
    if (!text) {
        json_null(j, name);
        return;
    }
    put_name(j, name);
    json_put_string(j->out, text);
}

void json_unsigned(struct json *j, const char *name, uint64_t value)
{
    put_name(j, name);
    fprintf(j->out, "%" PRIu64, value);
}

void json_integer(struct json *j, const char *name, int64_t value)
{
    put_name(j, name);
    fprintf(j->out, "%" PRId64, value);
}

void json_real(struct json *j, const char *name, double value)
{
    if (!isfinite(value)) {
        json_null(j, name);
        return;
    }
    put_name(j, name);
    fprintf(j->out, "%.6f", value);
}

void json_bool(struct json *j, const char *name, bool value)
{
    put_name(j, name);
    fputs(value ? "true" : "false", j->out);
}

void json_null(struct json *j, const char *name)
{
    put_name(j, name);
    fputs("null", j->out);
}

void json_filled_text(struct json *j, const char *name, const char *text)
{
    json_text(j, name, text[0] ? text : NULL);
}

void json_known_unsigned(struct json *j, const char *name, bool known, uint64_t value)
{
    if (known)
        json_unsigned(j, name, value);
    else
        json_null(j, name);
}

void json_known_integer(struct json *j, const char *name, bool known, int64_t value)
{
    if (known)
        json_integer(j, name, value);
    else
        json_null(j, name);
}
