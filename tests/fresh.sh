#!/bin/bash
# Tries README's first commands, `make demo` and `make check`, as a newcomer does: in new roots of Debian that hold git, make and sudo
# and nothing else.
#
#   BUILD=build tests/fresh.sh       every root below; KIND="word ..." keeps those whose names have one of the words: KIND=bookworm-user
#   FRESH_KEEP=1                     leaves the roots in $BUILD/fresh for a look: tests/fresh.sh enter NAME [COMMAND]
#   FRESH_COMMANDS='make lint'       other commands than README's
#   tests/fresh.sh clang             a root of the newer release alone, in which clang builds everything, warnings are errors, and two
#                                    ranks train: what `make check` does when CI is set
#
#   RELEASE-machine     root on a machine of that release: namespaces, mounts and cgroups are allowed
#   RELEASE-user        the same machine; an ordinary user with a sudo that asks nothing
#   RELEASE-container   root in a container of podman with podman's own capabilities and its list of allowed system calls
#
# Needs root, mmdebstrap, podman with runc, and Debian's packages. A root passes when no test fails, and when each skipped test says
# that it needs a GPU or what this kind of root does not allow. Prints one TAP line a root; logs lie in $BUILD/fresh.
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
state=$build/fresh
releases=(bookworm trixie)
kinds=(machine user container)
commands=${FRESH_COMMANDS:-'make demo && make check'}
limit=3600 # seconds for one root
# The reasons that a skipped test may give, by the kind of the root.
declare -A allowed=([machine]='GPU|CUDA|the kernel' [user]='GPU|CUDA|the kernel|needs root|not root'
    [container]='GPU|CUDA|the kernel|not allowed here')

enter_root() { # NAME COMMAND: runs a shell command line as the root's user, in the clone, with an environment of its own
    local root=$state/$1 who=root home=/root
    [[ $1 != *-user ]] || who=newcomer home=/home/newcomer
    local environment=(env -i "HOME=$home" "USER=$who" "LOGNAME=$who" SHELL=/bin/bash TERM=dumb LANG=C.UTF-8
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
    if [[ $1 == *-container ]]; then
        podman "${podman_options[@]}" run --rm --network host "${podman_limits[@]}" -v "$packages:/var/cache/apt/archives" \
            --workdir "$home/hvdrun" --rootfs "$root" "${environment[@]}" bash -c "$2"
    else
        unshare -m -u -i -p --fork --kill-child=SIGKILL tests/enter_root.sh "$root" \
            setpriv --reuid "$who" --regid "$who" --init-groups "${environment[@]}" bash -c "cd '$home/hvdrun' && { $2
            }"
    fi
}

# Debian 12's crun knows no hybrid cgroups. Limits are those that we have: a root without CAP_SYS_RESOURCE cannot raise any.
podman_options=(--runtime runc)
podman_limits=(--ulimit "nofile=1024:$(ulimit -Hn)" --ulimit nproc=4096:4096)
packages=$state/packages # of all roots, downloaded once

make_root() { # NAME
    local root=$state/$1 home=root
    mkdir -p "$packages/partial"
    [ -e "$state/${1%-*}.tar" ] ||
        mmdebstrap --quiet --variant=minbase --include=git,make,sudo,ca-certificates "${1%-*}" "$state/${1%-*}.tar" || return
    mkdir "$root" && tar -C "$root" -xf "$state/${1%-*}.tar" && chmod 755 "$root" || return
    cp --remove-destination -L /etc/resolv.conf "$root/etc/" || return
    if [[ $1 == *-user ]]; then
        home=home/newcomer
        chroot "$root" useradd -m -s /bin/bash newcomer &&
            echo 'newcomer ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/newcomer" || return
    fi
    git clone -q --no-hardlinks . "$root/$home/hvdrun" || return
    [[ $1 != *-user ]] || chroot "$root" chown -R newcomer:newcomer /home/newcomer
    [[ $1 == *-container ]] || mount --bind "$packages" "$root/var/cache/apt/archives"
}

remove_root() { # NAME
    ! mountpoint -q "$state/$1/var/cache/apt/archives" || umount "$state/$1/var/cache/apt/archives"
    rm -rf --one-file-system "${state:?}/$1"
}

fail_root() { # NAME TEXT
    failed=1
    echo "not ok - fresh: $1: $2 ($state/$1.log)"
}

judge_root() { # NAME STATUS: prints the TAP line
    local log=$state/$1.log line
    line=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$log" | tail -n 1)
    grep -hE '^ok - .* # SKIP' "$log" "$state/$1.check.log" 2> /dev/null | sort -u |
        grep -vE "# SKIP .*(${allowed[${1#*-}]})" > "$state/$1.skipped"
    if [ "$2" != 0 ]; then
        fail_root "$1" "exit status $2, ${line:-no test ran}"
        grep -hE '^not ok - ' "$log" | sort -u | head -n 40 | sed 's/^/    # /'
    elif [ -s "$state/$1.skipped" ]; then
        fail_root "$1" "tests are skipped that could run, $line"
        sed 's/^/    # /' "$state/$1.skipped"
    else
        echo "ok - fresh: $1: ${line:-$(tail -n 1 "$log")}"
    fi
}

try_root() { # NAME
    local began=$SECONDS status
    remove_root "$1"
    if ! make_root "$1" > "$state/$1.log" 2>&1; then
        fail_root "$1" "the root cannot be made: $(tail -n 1 "$state/$1.log")"
        return
    fi
    enter_root "$1" "timeout $limit bash -c '$commands'" > "$state/$1.log" 2>&1 < /dev/null
    status=$?
    find "$state/$1/root/hvdrun" "$state/$1/home/newcomer/hvdrun" -maxdepth 2 -name check.log -exec cp {} "$state/$1.check.log" \; 2> /dev/null
    judge_root "$1" $status
    echo "# $1: $((SECONDS - began)) s"
    [ -n "${FRESH_KEEP:-}" ] || remove_root "$1"
}

lacks_something() { # prints the reason
    [ "$(id -u)" = 0 ] || { echo 'needs root'; return; }
    local program programs='mmdebstrap podman runc'
    [ "$1" != clang ] || programs=mmdebstrap
    for program in $programs; do
        command -v $program > /dev/null || { echo "needs $program (apt-get install $programs)"; return; }
    done
    return 1
}

wanted() { # NAME
    local word
    for word in ${KIND:-}; do [[ $1 != *$word* ]] || return 0; done
    [ -z "${KIND:-}" ]
}

if why=$(lacks_something "${1:-}"); then
    echo "ok - fresh # SKIP $why"
    exit 0
fi
mkdir -p "$state"
chmod 755 "$state"
if [ "${1:-}" = enter ]; then
    enter_root "$2" "${3:-bash}"
    exit
fi
failed=0
if [ "${1:-}" = clang ]; then
    commands='sudo apt-get -q update && sudo apt-get -q install -y --no-install-recommends clang && sh tests/deps.sh install build options &&
        export CI=true CC=clang && make -s -j2 all && build/hvdrun -np 2 build/examples/train --steps 10'
    limit=900
    KIND=${KIND:-trixie-machine}
fi
for release in "${releases[@]}"; do
    for kind in "${kinds[@]}"; do
        wanted "$release-$kind" || continue
        try_root "$release-$kind"
    done
done
exit $failed
