/* Several faults of several hosts, as a user reads them: hosts with one fault together, in lines of at most
 * 80 columns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define FAULTS_NAMES_MAX 160

/* All texts belong to the caller. */
struct fault {
    const char *host;
    int code; /* an exit status */
    const char *what, *why, *fix;
    bool unreached; /* the host itself failed, before its session could say anything */
};

/* The same for the user, whatever the hosts. */
bool faults_are_alike(const struct fault *a, const struct fault *b);
/* "a, b and 3 more": each host once; the faults of a host stand together. */
void faults_name_hosts(const struct fault *f, size_t count, char *text, size_t size);
void faults_say(const struct fault *f, size_t count);
