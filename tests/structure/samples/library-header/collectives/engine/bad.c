/* Reaches libuv through a header that is ours. */
#include "common/process/loop.h"
