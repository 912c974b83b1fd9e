/* The variables of PMIx for the workers. They are predicted while the PMIx library was not asked yet; later
 * they are the library's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/rendezvous/rendezvous.h"

struct pmix_variables {
    struct rendezvous *r;
    uint16_t port; /* of the listener */
    char **list;   /* NAME=value, NULL at the end; NULL: nothing was said yet */
    size_t count;
};

/* The library's own word, before the workers start; but its clients come through the listener. -1 with *e. */
int pmix_variables_adopt(struct pmix_variables *v, char *const *said, size_t count, struct err *e);
/* The rest, or all of them where the library was not asked. -1 with *e. */
int pmix_variables_predict(struct pmix_variables *v, struct err *e);
/* Warns when the workers got another value than the library wants, of a variable that must agree. */
void pmix_variables_compare(struct pmix_variables *v, char *const *said, size_t count);
/* The value of NAME in a list, or NULL. */
const char *pmix_variables_find(char *const *list, size_t count, const char *name);
/* Has the user set it? */
bool pmix_variables_given(const Hvd__Spawn *spawn, const char *name);
void pmix_variables_free(struct pmix_variables *v);
