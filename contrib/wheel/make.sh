#!/bin/bash
# Makes the wheels `hvdrun` and `hvdrun-horovod` in BUILD/dist: make.sh BUILD VERSION. `make wheel` calls it.
#
# 1. The stage, BUILD/wheel/stage, has what `make install` installs. It becomes the wheel's data: files below sys.prefix.
# 2. Libraries that modules need, and that a bare machine may lack, are laid beside the modules, where the modules look first.
# 3. No file may need a newer glibc than the wheel's tag promises. A file that does is named, with the symbol.
# 4. The licence of each library that is inside, from an archive or as a file, is taken from Debian's package.
# 5. `wheel pack` writes RECORD and the archive.
set -eu -o pipefail

build=$(realpath "$1") version=$2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=${PYTHON:-/usr/bin/python3}
work=$build/wheel
dist=$build/dist
glibc=2.34
tag=cp311-abi3-manylinux_${glibc/./_}_$(uname -m)
main=$work/hvdrun names=$work/horovod
data=$main/hvdrun-$version.data/data
info=$main/hvdrun-$version.dist-info

die() {
    echo "make wheel: $1" >&2
    exit 1
}

# A wheel has no links: libhvd.so is a linker script. hvd.pc finds the others from where it lies.
lay_data() {
    mkdir -p "$main/hvdrun-$version.data" "$info"
    mv "$work/stage" "$data"
    rm "$data"/lib/libhvd.{a,so,so.0}
    mv "$data/lib/libhvd.so.$version" "$data/lib/libhvd.so.0"
    echo 'INPUT(libhvd.so.0)' > "$data/lib/libhvd.so"
    # shellcheck disable=SC2016 # pkg-config's variable
    sed -i 's,^prefix=.*,prefix=${pcfiledir}/../..,' "$data/lib/pkgconfig/hvd.pc"
}

# glibc's own are everywhere; those of hvd-pmix are the machine's.
carry_libraries() {
    local module path
    for module in "$data"/lib/hvd/*.so; do
        ldd "$module" | awk '$2 == "=>" && $3 ~ "^/" { print $1, $3 }'
    done | grep -vE '^(libc|libm|libdl|librt|libpthread|ld-linux-x86-64)\.so' | sort -u > "$work/carried"
    while read -r module path; do
        [ ! -e "$data/lib/hvd/$module" ] || continue
        install -s -m 644 "$path" "$data/lib/hvd/$module"
    done < "$work/carried"
}

lay_package() {
    mkdir "$main/hvdrun"
    cp python/entry_points.txt "$info/"
    (cd "$build/python" && find hvdrun hvdrun_torch.py -name __pycache__ -prune -o -type f -print) | while read -r file; do
        install -D -m 644 "$build/python/$file" "$main/$file"
    done
    strip "$main/hvdrun/_hvd.abi3.so"
}

check_glibc() {
    local file newer bad=0
    while read -r file; do
        newer=$(objdump -T "$file" 2> /dev/null | awk -v most="$glibc" '
            match($0, /GLIBC_[0-9.]+/) {
                split(substr($0, RSTART + 6, RLENGTH - 6), v, "."); split(most, m, ".")
                if (v[1] > m[1] || v[2] + 0 > m[2] + 0) print $NF " of glibc " v[1] "." v[2]
            }' | paste -sd, | sed 's/,/, /g')
        [ -z "$newer" ] || { echo "make wheel: ${file#"$main"/} needs $newer; the wheel promises $glibc" >&2; bad=1; }
    done < <(find "$main" -type f \( -name '*.so*' -o -perm /111 \))
    return $bad
}

# What is linked from an archive has its licence in the package of the archive.
copy_licences() {
    local file package to=$info/licenses
    mkdir -p "$to"
    cp LICENSE "$to/hvdrun.txt"
    {
        cut -d' ' -f2 "$work/carried"
        for file in uv_a protobuf-c ssh2 ssl crypto z yaml; do gcc -print-file-name="lib$file.a"; done
    } | while read -r file; do
        package=$(dpkg -S "$(realpath "$file")" 2> /dev/null | cut -d: -f1 | head -n 1)
        [ -n "$package" ] && [ -e "/usr/share/doc/$package/copyright" ] || die "no package of Debian has the licence of $file"
        cp "/usr/share/doc/$package/copyright" "$to/$package.txt"
    done
    # Debian's files name the common licences rather than repeat them.
    cat "$to"/*.txt | grep -oE '/usr/share/common-licenses/[A-Za-z]+(-[0-9.]*[0-9])?' | sort -u | while read -r file; do
        [ ! -e "$file" ] || cp -L "$file" "$to/"
    done
}

write_metadata() { # DIRECTORY NAME SUMMARY [LINE]...
    mkdir -p "$1"
    {
        printf '%s\n' 'Metadata-Version: 2.1' "Name: $2" "Version: $version" "Summary: $3" 'License: Apache-2.0' \
            'Requires-Python: >=3.11' 'Classifier: Operating System :: POSIX :: Linux' \
            'Description-Content-Type: text/markdown' "${@:4}" ''
        cat docs/python.md
    } > "$1/METADATA"
}

write_tags() { # DIRECTORY PURE TAG
    printf '%s\n' 'Wheel-Version: 1.0' 'Generator: hvdrun make wheel' "Root-Is-Purelib: $2" "Tag: $3" > "$1/WHEEL"
}

make_names() {
    local to=$names/hvdrun_horovod-$version.dist-info
    mkdir -p "$names"
    (cd python && find horovod hvdrun_horovod.py -name '*.py') | while read -r file; do
        install -D -m 644 "python/$file" "$names/$file"
    done
    # Read at each start of this Python: when files of stock Horovod lie there, an import of horovod says so.
    echo 'import hvdrun_horovod; hvdrun_horovod.watch()' > "$names/hvdrun_horovod.pth"
    write_metadata "$to" hvdrun-horovod "Horovod's names for hvdrun: import horovod.torch" "Requires-Dist: hvdrun (==$version)"
    write_tags "$to" true py3-none-any
    printf '%s\n' '[console_scripts]' 'horovodrun = hvdrun.command:main' > "$to/entry_points.txt"
    mkdir "$to/licenses" && cp LICENSE "$to/licenses/hvdrun.txt"
}

"$python" -c 'import wheel' 2> /dev/null || die "needs the program that packs wheels (apt install python3-wheel)"
rm -rf "$main" "$names" "$dist"
mkdir -p "$dist"
lay_data
carry_libraries
lay_package
check_glibc || exit 1
copy_licences
write_metadata "$info" hvdrun 'Collective operations and the launcher of distributed jobs, for NumPy and PyTorch'
write_tags "$info" false "$tag"
make_names
for root in "$main" "$names"; do "$python" -m wheel pack "$root" -d "$dist" > "$work/pack.log"; done
ls -sh "$dist"
