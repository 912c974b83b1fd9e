/* The page of a job: one HTML file that needs no network, made of page.html and the JSON of hvdrun's
 * report. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Does the name of a file ask for a page? ".html" or ".htm" at its end. */
bool page_is_wanted(const char *path);
/* Writes the page. The JSON may have any text in it: it stays data. Errors are the caller's to see with
 * ferror. */
void page_write(FILE *out, const char *json, size_t size);
