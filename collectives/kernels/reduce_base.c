/* The inner loops for any processor. */
#define KERNELS      reduce_base
#define KERNELS_NAME "base"
#include "collectives/kernels/reduce_loops.h"
