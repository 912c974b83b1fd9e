# shellcheck shell=bash
# The command that runs Python with the package of BUILD, on every host of a job: python=(...).
#
#   PYTHON=/usr/bin/python3      another Python
#   SANITIZE=address,undefined   BUILD has such an extension: a Python that was not built with sanitizers loads their libraries first. It
#                                has leaks of its own

PYTHON=${PYTHON:-/usr/bin/python3}
python=(env "PYTHONPATH=$BUILD/python" PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1)
if [ -n "${SANITIZE:-}" ]; then
    python+=("LD_PRELOAD=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)"
        ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1 PYTHONMALLOC=malloc)
fi
python+=("$PYTHON")
