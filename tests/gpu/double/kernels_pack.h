#ifndef HVD_TESTS_DOUBLE_KERNELS_PACK_H
#define HVD_TESTS_DOUBLE_KERNELS_PACK_H

#include "tests/gpu/double/double.h"

void double_pack_copy(const struct double_launch *l);
void double_pack_scale(const struct double_launch *l);

#endif
