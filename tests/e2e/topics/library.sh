# shellcheck shell=bash disable=SC2034,SC2154
# libhvd as others get it: compiled as C++, and installed, with pkg-config, names of versions and manual pages.
limit=60

sanitize=${E2E_SANITIZE:+-fsanitize=$E2E_SANITIZE}

case_a_cpp_worker_without_a_warning() {
    command -v g++ > /dev/null || skip 'no g++ here'
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Wconversion -Wold-style-cast -Werror ${sanitize:+"$sanitize"} -I "$top/collectives" "$top/tests/e2e/face.cpp" \
        -o "$T/face" -L "$BUILD" -lhvd -Wl,-rpath,"$BUILD" 2> "$T/err" || fail 'it was not compiled'
    hvd -np 2 "$T/face"
    expect_status 0
    expect_sorted 'rank 0: all right' 'rank 1: all right'
}

case_the_header_in_other_dialects_of_c() {
    local dialect
    for dialect in c99 c11 gnu17; do
        echo '#include <hvd.h>' | cc -std=$dialect -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I "$top/collectives" -xc - 2> "$T/err" ||
            fail "hvd.h is not $dialect"
    done
}

# PIE, all relocations read-only before main, checked calls of libc, checked stacks; CET in our objects (a file has CET where all of its objects do).
case_files_are_hardened() {
    local file
    [ -z "${E2E_SANITIZE:-}" ] || skip 'built with a sanitizer'
    for file in "$BUILD"/{hvdrun,hvdagent,hvdctl,libhvd.so} "$BUILD"/modules/*; do
        readelf -hldn "$file" > "$T/elf" 2>&1 || fail "readelf $file"
        nm -D "$file" > "$T/symbols"
        grep -q 'Type: .*DYN' "$T/elf" || fail "$file has a fixed address"
        grep -q 'GNU_RELRO' "$T/elf" && grep -qE 'BIND_NOW|FLAGS.*NOW' "$T/elf" || fail "$file: relocations can be written to"
        grep -qE 'GNU_STACK' "$T/elf" && ! grep -A1 'GNU_STACK' "$T/elf" | grep -q RWE || fail "$file: its stack is executable"
        case $file in */modules/*.so) continue ;; esac # a small module may have nothing to check
        grep -q '__stack_chk_fail' "$T/symbols" || fail "$file: stacks are not checked"
        grep -qE '__[a-z]+_chk@' "$T/symbols" || fail "$file: calls of libc are not checked"
    done
    case $(uname -m) in x86_64) readelf -n "$BUILD/obj/common/base/err.o" | grep -q 'IBT, SHSTK' || fail 'objects have no CET' ;; esac
}

installer() { # TARGET
    MAKEFLAGS='' make -C "$top" BUILD="$BUILD" SANITIZE="${E2E_SANITIZE:-}" DESTDIR="$T/root" PREFIX=/opt/hvd "$1" > "$T/make" 2>&1 ||
        fail "make $1: $(tail -n 3 "$T/make")"
}

worker_of_the_readme() { # the first piece of C there is a whole program, others are what stands in one
    # shellcheck disable=SC2016
    awk '/^```/ { n += inside = $0 == "```c"; next } inside && n == 1' "$top/README.md" > "$T/worker.c"
}

case_installed_it_serves_the_worker_of_the_readme() {
    local flags=() lib=$T/root/opt/hvd/lib man=$T/root/opt/hvd/share/man/man3 name
    command -v pkg-config > /dev/null || skip 'no pkg-config here'
    installer install
    export PKG_CONFIG_PATH=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$T/root
    read -r -a flags < <(pkg-config --cflags --libs hvd)
    worker_of_the_readme
    # shellcheck disable=SC2016
    awk 'BEGIN { print "#include <hvd.h>\nvoid part(void *stream, float *gradient, uint64_t count);\nvoid part(void *stream, float *gradient, uint64_t count)\n{" }
        /^```/ { n += inside = $0 == "```c"; next } inside && n == 2 { print } END { print "}" }' "$top/README.md" > "$T/part.c"
    cc -Wall -Wextra -Werror -c "$T/part.c" -o "$T/part.o" "${flags[@]}" 2> "$T/err" || fail 'what it says of GPUs was not compiled'
    cc -Wall -Wextra -Werror ${sanitize:+"$sanitize"} "$T/worker.c" -o "$T/worker" "${flags[@]}" 2> "$T/err" || fail 'it was not compiled'
    run env LD_LIBRARY_PATH="$lib" "$T/root/opt/hvd/bin/hvdrun" -np 2 "$T/worker"
    expect_status 0
    expect_out 'the sum of the ranks is 1'

    expect_same "$("$HVDRUN" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)" "$(pkg-config --modversion hvd)" 'the version'
    expect_same "libhvd.so.$(pkg-config --modversion hvd)" "$(readlink "$lib/libhvd.so.0")" 'what libhvd.so.0 is'
    expect_same libhvd.so.0 "$(readlink "$lib/libhvd.so")" 'what libhvd.so is'
    for name in $(nm -D --defined-only "$lib/libhvd.so" | awk '{print $3}' | grep '^hvd_' | cut -d@ -f1); do
        [ -s "$man/$name.3" ] || fail "$name has no manual page"
        name=$(sed -n 's/^\.so //p' "$man/$name.3")
        [ -z "$name" ] || [ -s "$man/../$name" ] || fail "a page reads $name, which is not there"
    done
    installer uninstall
    expect_same '' "$(find "$T/root" ! -type d)" 'what uninstall leaves'
}

elsewhere() { # TARGET [VARIABLE=VALUE]...: in a prefix where neither linker nor systemd look
    MAKEFLAGS='' make -C "$top" BUILD="$BUILD" SANITIZE="${E2E_SANITIZE:-}" PREFIX="$T/elsewhere" "$@" > "$T/make" 2>&1 || fail "make $*: $(tail -n 3 "$T/make")"
}

with_symbols() { # installed programs and libraries that have more than what is needed to run them
    local file
    for file in "$T"/elsewhere/bin/* "$T"/elsewhere/lib/hvd/hvd-* "$T"/elsewhere/lib/hvd/*.so "$T"/elsewhere/lib/libhvd.so; do
        ! readelf -SW "$file" | grep -qE '\.(symtab|debug_info) ' || echo "${file##*/}"
    done
}

case_in_a_prefix_of_its_own_it_needs_no_variable_and_leaves_nothing() {
    local flags=() before units
    command -v pkg-config > /dev/null || skip 'no pkg-config here'
    mkdir -p "$T/elsewhere/lib" "$T/elsewhere/share/man/man3"
    echo other > "$T/elsewhere/lib/other"
    before=$(find "$T/elsewhere" | sort)
    elsewhere install
    expect_same '' "$(with_symbols)" 'what has symbols'
    units=$(grep -c 'systemd does not look in' "$T/make")
    expect_same "$([ -e "$BUILD/modules/systemd.so" ] && echo 1 || echo 0)" "$units" 'how often it is said that systemd does not look there'

    worker_of_the_readme
    read -r -a flags < <(PKG_CONFIG_PATH=$T/elsewhere/lib/pkgconfig pkg-config --cflags --libs hvd)
    cc -Wall -Wextra -Werror ${sanitize:+"$sanitize"} "$T/worker.c" -o "$T/worker" "${flags[@]}" 2> "$T/err" || fail 'it was not compiled'
    run env -u LD_LIBRARY_PATH "$T/elsewhere/bin/hvdrun" -np 2 "$T/worker"
    expect_status 0
    expect_out 'the sum of the ranks is 1'
    if [ -e "$BUILD/python/hvdrun/_hvd.abi3.so" ] && [ -z "${sanitize:-}" ]; then
        # It leaves compiled files beside the package, as the system's Python does for root.
        run env -u LD_LIBRARY_PATH -u PYTHONDONTWRITEBYTECODE "PYTHONPATH=$(dirname "$T"/elsewhere/lib/python3*/*/hvdrun)" "$T/elsewhere/bin/horovodrun" -np 2 /usr/bin/python3 "$top/tests/wheel/sum.py"
        expect_status 0
        expect_out '^rank 1 of 2: 3.0$'
    fi

    elsewhere install STRIP= # over it
    [ "$(with_symbols | wc -l)" -gt 8 ] || fail "STRIP= leaves symbols in these alone: $(with_symbols)"
    echo mine > "$T/elsewhere/share/man/man3/mine.3"
    elsewhere uninstall
    rm "$T/elsewhere/share/man/man3/mine.3"
    expect_same "$before" "$(find "$T/elsewhere" | sort)" 'what uninstall leaves'
}

# Nothing of this machine is changed: /usr/local is empty there, and /etc a copy.
case_the_package_is_where_the_systems_python_looks() {
    needs_mounts
    [ -e "$BUILD/python/hvdrun/_hvd.abi3.so" ] && [ -z "${sanitize:-}" ] || skip 'no Python package in this build'
    cp -a /etc "$T/etc"
    # shellcheck disable=SC2016 # of the inner shell
    run env -u LD_LIBRARY_PATH -u PYTHONPATH -u PYTHONDONTWRITEBYTECODE MAKEFLAGS= unshare -m bash -ec 'mount -t tmpfs local /usr/local; mount --bind "$1/etc" /etc
        make -C "$2" BUILD="$3" install > "$1/make" 2>&1
        cd /
        /usr/bin/python3 -c "import horovod, hvdrun; print(hvdrun.__file__)"
        /usr/local/bin/horovodrun -np 2 /usr/bin/python3 "$2/tests/wheel/sum.py"
        make -C "$2" BUILD="$3" uninstall > "$1/make" 2>&1
        find /usr/local ! -type d | sed "s/^/left: /"' bash "$T" "$top" "$BUILD"
    expect_status 0
    expect_out '^/usr/local/lib/python3.*/hvdrun/__init__.py$'
    expect_out '^rank 1 of 2: 3.0$'
    expect_no "$T/out" '^left: '
    rm -rf "${T:?}/etc"
}
