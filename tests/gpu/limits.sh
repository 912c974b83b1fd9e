# shellcheck shell=bash
# gpu_limit NAME: of the table in limits.h beside this, for the mode that tests run in (REAL_GPU).
gpu_limit() {
    local column=1 dir
    dir=$(dirname "${BASH_SOURCE[0]}")
    [ -z "${REAL_GPU:-}" ] || column=2
    sed -nE "s/^ *X\($1, *([0-9]+), *([0-9]+)\).*/\\$column/p" "$dir/limits.h"
}
