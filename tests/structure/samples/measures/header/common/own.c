#include "common/own.h"
#include "common/shared.h"
#include "common/single.h"
