#!/bin/bash
# After a failed or stuck case: sweep.sh DIRECTORY KIND ends the processes that it left and names them.
set -u
export T=$1 KIND=$2
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
sweep
