#!/bin/bash
# Everything about the sources that a program can say: structure, format, static analysis, shell scripts, man pages.
# One TAP line a check; a tool that is not installed is a skip with its name. BUILD holds tests/structure and gen/.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
BUILD=${BUILD:-build}
failed=0

tracked() { # PATTERN...: files of the tree, also new ones, without samples
    { git ls-files -co --exclude-standard -- "$@" 2>/dev/null || find . -name "$1" -not -path './build/*'; } |
        grep -v '/samples/' | while read -r file; do [ ! -f "$file" ] || echo "$file"; done | sort -u
}

result() { # NAME OUTPUT: a failure when there is output
    if [ -z "$2" ]; then
        echo "ok - lint: $1"
    else
        failed=1
        echo "$2" | head -n 60 | sed 's/^/    # /'
        echo "not ok - lint: $1"
    fi
}

check() { # NAME PROGRAM FUNCTION
    if command -v "$2" > /dev/null; then
        result "$1" "$("$3" 2>&1)"
    else
        echo "ok - lint: $1 # SKIP no $2 here"
    fi
}

# shellcheck disable=SC2317,SC2329 # all are called by check
format() {
    tracked '*.c' '*.h' | xargs -r clang-format --dry-run -Werror 2>&1 | grep -E 'error:' |
        cut -d: -f1 | uniq -c | awk '{print $2 ": " $1 " places are not formatted (clang-format -i)"}'
}

# shellcheck disable=SC2317,SC2329
analysis() {
    tracked '*.c' | grep -vE '^tests/(unit|fuzz|bench)/' |
        xargs -r cppcheck --quiet --std=c11 --language=c --enable=warning,portability --inline-suppr --error-exitcode=3 \
            --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=preprocessorErrorDirective \
            -D__linux__ -D__x86_64__ '-DHVD_VERSION="0"' -I. -Icollectives -I"$BUILD/gen" -j"$(nproc)" 2>&1
}

# shellcheck disable=SC2317,SC2329
scripts() {
    tracked '*.sh' .ci/run | xargs -r shellcheck -x -P SCRIPTDIR -P . -S warning
}

# shellcheck disable=SC2317,SC2329
pages() {
    local page
    for page in man/*.[1-8]; do
        [ -e "$page" ] || continue
        mandoc -Tlint -W warning "$page"
        groff -mandoc -wbreak -Tutf8 "$page" 2>&1 > /dev/null | sed "s,^,$page: ,"
        groff -mandoc -Tascii -rLL=78n -P-cbou "$page" 2> /dev/null | narrow_page "$page"
    done
}

# As `man` of Debian shows a page on a terminal of 80 columns: a line that is wider, and a column of words, which is a table that
# has no room for its text.
# shellcheck disable=SC2317,SC2329
narrow_page() { # PAGE
    awk -v page="$1" '
        length > 80 { print page ": wider than 80 columns: " $0 }
        { indent = match($0, /[^ ]/) }
        NF == 1 && indent > 1 && indent == before { if (++words == 4) print page ": one word a line: " $0; next }
        { before = indent; words = NF == 1 }'
}

# shellcheck disable=SC2317,SC2329
whitespace() {
    tracked '*.c' '*.h' '*.sh' '*.md' '*.proto' Makefile '*.mk' | xargs -r grep -nE '[[:space:]]+$'
    tracked '*.c' '*.h' '*.sh' '*.md' '*.proto' | while read -r file; do
        [ ! -s "$file" ] || [ -z "$(tail -c 1 "$file")" ] || echo "$file: no newline at the end"
    done
}

# shellcheck disable=SC2317,SC2329
manifests() {
    tracked 'contrib/*.yaml' | xargs -r /usr/bin/python3 tests/lint/manifests.py
}

# shellcheck disable=SC2317,SC2329
links() {
    tracked '*.md' | xargs -r /usr/bin/python3 tests/lint/links.py
}

# shellcheck disable=SC2317,SC2329
python_types() {
    mypy --config-file python/mypy.ini --python-executable /usr/bin/python3 --cache-dir "$BUILD/mypy" \
        python/hvdrun python/horovod python/hvdrun_horovod.py python/hvdrun_torch.py |
        grep -v '^Success'
}

# shellcheck disable=SC2317,SC2329
python_style() {
    ruff check --quiet --config python/ruff.toml --cache-dir "$BUILD/ruff" --output-format concise python
}

# shellcheck disable=SC2317,SC2329
manual() {
    bash tests/lint/manual.sh
}

"$BUILD/tests/structure" . || failed=1
check "format" clang-format format
check "static analysis" cppcheck analysis
check "shell scripts" shellcheck scripts
check "man pages" mandoc pages
check "hvd.h is in the manual" awk manual
check "white space" grep whitespace
check "links of documents" /usr/bin/python3 links
check "types of the Python package" mypy python_types
check "style of the Python package" ruff python_style
if /usr/bin/python3 -c 'import yaml' 2> /dev/null; then
    check "manifests" /usr/bin/python3 manifests
else
    echo "ok - lint: manifests # SKIP no python3-yaml here"
fi
exit $failed
