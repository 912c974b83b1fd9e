/* The lists of the manual pages, written from an option table as mdoc(7). */
#pragma once

#include "common/options/options.h"

/* The options by group. */
void options_print_mdoc(const struct options_program *program, FILE *out);
/* The keys of a configuration file as such a list. */
void options_print_mdoc_keys(const struct options_program *program, FILE *out);
/* The variables likewise. */
void options_print_mdoc_variables(const struct options_program *program, FILE *out);
