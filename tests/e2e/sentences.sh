# shellcheck shell=bash disable=SC2034,SC2154
# Every error that two ranks can make, word for word: tests/e2e/sentences.c makes them, sentences.txt has what is said, to be read aloud.
# Both ranks of a mismatch hear the same. Numbers of handles and processes differ from run to run and are an N there.
# HVD_UPDATE=1 writes the file anew: read it then.

name_hosts() { # loopback hosts have addresses for names
    if [ "$KIND" = loop ]; then sed -e "s/${H1//./\\.}/node1/g" -e "s/${H2//./\\.}/node2/g"; else cat; fi
}

sentences() { # FILE ARGUMENTS of hvdrun
    hvd "${@:2}" "$BUILD/tests/sentences"
    sed -E -e 's/(handle|process) -?[0-9]+/\1 N/' "$T/out" | name_hosts | sort > "$T/said"
    [ -z "${HVD_UPDATE:-}" ] || cp "$T/said" "$top/tests/e2e/$1"
    diff "$top/tests/e2e/$1" "$T/said" || fail "that is not what $1 has"
}
