/* The simulated job has so few slots that its names are forgotten while it runs. The region keeps its
 * size. */
#ifndef HVD_TESTS_SIM_SLOTS_H
#define HVD_TESTS_SIM_SLOTS_H

#include "collectives/shm/layout.h"

#undef SHM_SLOTS
#define SHM_SLOTS 16u

#endif
