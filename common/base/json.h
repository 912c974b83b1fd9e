/* Writes JSON (RFC 8259) to a stream, indented. Errors of the stream are the caller's to see with ferror.
 *
 *   json_begin(&j, out);                      {
 *   json_object(&j, NULL);                      "name": "x",
 *   json_text(&j, "name", "x");                 "times": [
 *   json_array(&j, "times");                      0.5
 *   json_real(&j, NULL, 0.5);                   ]
 *   json_end(&j); json_end(&j);               }
 *
 * Members of an object have a name; elements of an array and the outermost value have NULL. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_DEPTH_MAX 32

struct json {
    FILE *out;
    unsigned depth;
    bool filled;     /* the open object or array has something in it */
    uint32_t arrays; /* bit n: what is open at depth n is an array */
};

void json_begin(struct json *j, FILE *out);
void json_object(struct json *j, const char *name);
void json_array(struct json *j, const char *name);
/* Closes the innermost object or array; a newline follows the outermost. */
void json_end(struct json *j);

/* The string alone, in quotes, without anything around it. */
void json_put_string(FILE *out, const char *text);
/* Bytes that are not UTF-8 become U+FFFD. NULL becomes null. */
void json_text(struct json *j, const char *name, const char *text);
void json_unsigned(struct json *j, const char *name, uint64_t value);
void json_integer(struct json *j, const char *name, int64_t value);
/* With six decimals; what is no number becomes null. */
void json_real(struct json *j, const char *name, double value);
void json_bool(struct json *j, const char *name, bool value);
void json_null(struct json *j, const char *name);
/* null when the text is empty, or the number is not known. */
void json_filled_text(struct json *j, const char *name, const char *text);
void json_known_unsigned(struct json *j, const char *name, bool known, uint64_t value);
void json_known_integer(struct json *j, const char *name, bool known, int64_t value);
