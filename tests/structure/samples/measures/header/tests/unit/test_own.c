#include "common/own.h"
#include "common/single.h"
