# shellcheck shell=bash disable=SC2154
# Python with the package of this build, for topics: python=(...).

export TORCHINDUCTOR_CACHE_DIR=${T:-}/inductor # PyTorch from 2.15 on makes it at its import
# shellcheck source=python/tests/interpreter.sh
SANITIZE=$E2E_SANITIZE . "$top/python/tests/interpreter.sh"

needs_package() {
    [ -e "$BUILD/python/hvdrun/_hvd.abi3.so" ] || skip 'no Python package in this build (python3-dev)'
}

has_module() {
    "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" 2> /dev/null
}

needs_module() {
    has_module "$1" || skip "$PYTHON has no $1 (apt install python3-$1)"
}
