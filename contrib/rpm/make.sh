#!/bin/sh
# make rpm: RPM packages of the files of this tree, in BUILD/rpm.
#
#   contrib/rpm/make.sh BUILD VERSION
#
# On Fedora and RHEL the build's own packages must be there (BuildRequires). Elsewhere rpmbuild knows nothing of the packages
# of the system, so the check is left out; make says what is missing.
set -eu
build=$(realpath -m "$1") version=$2
top=$build/rpm/top
unset BUILD MAKEFLAGS MFLAGS MAKELEVEL # of a make that has called this one

rm -rf "$build/rpm"
mkdir -p "$top/SOURCES" "$top/SPECS"
contrib/release/source.sh "$1" --transform="s,^,hvdrun-$version/," | gzip -n > "$top/SOURCES/hvdrun-$version.tar.gz"
cp contrib/rpm/hvdrun.spec "$top/SPECS"
unchecked=
rpm -q glibc > /dev/null 2>&1 || unchecked=--nodeps
rpmbuild $unchecked --quiet -bb --define "_topdir $top" --define "hvd_version $version" --define '_libdir /usr/lib64' \
    --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' --define 'clamp_mtime_to_source_date_epoch 1' \
    --define "_rpmdir $build/rpm" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
    "$top/SPECS/hvdrun.spec" > "$build/rpm/build.log" 2>&1 || {
    tail -n 30 "$build/rpm/build.log" >&2
    echo "make rpm: the build has failed; all of it is in $build/rpm/build.log" >&2
    exit 1
}
ls "$build"/rpm/*.rpm
