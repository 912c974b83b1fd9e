#pragma once

#include "tests/gpu/double/double.h"

void double_pack_copy(const struct double_launch *l);
void double_pack_scale(const struct double_launch *l);
