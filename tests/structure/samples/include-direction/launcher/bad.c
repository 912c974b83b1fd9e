#include "agent/worker.h"
