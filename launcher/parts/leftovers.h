/* Processes of the job that a host could not end. */
#ifndef HVD_LAUNCHER_PARTS_LEFTOVERS_H
#define HVD_LAUNCHER_PARTS_LEFTOVERS_H

#include <stdbool.h>

struct job;

/* Has a host named any? */
bool leftovers_exist(const struct job *j);

#endif
