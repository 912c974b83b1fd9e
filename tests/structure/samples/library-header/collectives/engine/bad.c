/* Reaches libuv through a header that is ours. */
#include "common/loop.h"
