/* Writes metrics in the text format of Prometheus, version 0.0.4: for each family a HELP and a TYPE line,
 * then its samples, all together.
 *
 *   exposition_family(out, "hvd_jobs", "gauge", "Jobs that run here.");
 *   exposition_sample(out, "hvd_jobs", 3, (const char *[]){"user", "alice", NULL});
 *
 * Values of labels may be anything: they are cut to EXPOSITION_VALUE_MAX and escaped, and all but printable
 * ASCII becomes "?". Errors of the stream are the caller's to see with ferror. */
#pragma once

#include <stdio.h>

#define EXPOSITION_VALUE_MAX 128
#define EXPOSITION_TYPE      "text/plain; version=0.0.4; charset=utf-8" /* of the content, in HTTP */

/* `type`: "counter" or "gauge". */
void exposition_family(FILE *out, const char *name, const char *type, const char *help);
/* `labels`: names and values in turn, ended by NULL; NULL: none. */
void exposition_sample(FILE *out, const char *name, double value, const char *const *labels);
/* A family of one sample without labels. */
void exposition_single(FILE *out, const char *name, const char *type, const char *help, double value);
