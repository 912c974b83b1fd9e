# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# Workers in containers of a real podman (contrib/podman.sh). The image is a new root of Debian, without hvdrun and without libraries for
# it; the programs of this build come by a mount. Needs root, podman, runc and mmdebstrap.
limit=120
alone=true

# The image, made once. Without CAP_SYS_RESOURCE podman cannot raise limits, and in hybrid cgroups crun does not run.
need_podman() {
    local program
    [ "$(id -u)" = 0 ] || skip 'not root'
    for program in podman runc mmdebstrap; do
        command -v "$program" > /dev/null || skip "no $program here"
    done
    export PODMAN="podman --root $BUILD/containers/root --runroot $BUILD/containers/run --storage-driver vfs --runtime runc --cgroup-manager cgroupfs"
    export PODMAN_OPTIONS="--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 -v $BUILD:$BUILD"
    mkdir -p "$BUILD/containers"
    $PODMAN rm --all --force > /dev/null 2>&1 # of a run that was ended
    $PODMAN image exists hvd-test && return
    mmdebstrap --quiet --variant=minbase "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$BUILD/containers/root.tar" > "$T/made" 2>&1 || fail "$(tail "$T/made")"
    $PODMAN import "$BUILD/containers/root.tar" hvd-test > "$T/made" 2>&1 || fail "$(tail "$T/made")"
    $PODMAN run --rm --network host $PODMAN_OPTIONS hvd-test true > "$T/made" 2>&1 || skip "podman does not run here: $(tail -n 1 "$T/made")"
}

no_container_is_left() {
    [ -z "$($PODMAN ps -q)" ]
}

slow_two_ranks_train_in_containers() {
    need_podman
    hvd -np 2 "$BUILD/examples/train" --steps 3
    expect_status 0
    grep '^step' "$T/out" | sed 's/ chars.*//' > "$T/without"
    hvd -np 2 "$top/contrib/podman.sh" hvd-test "$BUILD/examples/train" --steps 3
    expect_status 0
    grep '^step' "$T/out" | sed 's/ chars.*//' > "$T/with"
    expect_same "$(cat "$T/without")" "$(cat "$T/with")" 'losses'
    hvd -np 2 "$top/contrib/podman.sh" hvd-test sh -c 'echo "rank $HVD_RANK has $(ls /usr/bin | grep -c hvdrun) hvdrun in $PWD"'
    expect_count 2 "rank [01] has 0 hvdrun in $PWD" "$T/out"
    no_container_is_left || fail "$($PODMAN ps)"
}

slow_ends_are_those_of_the_command() {
    need_podman
    hvd -np 2 "$top/contrib/podman.sh" hvd-test sh -c '[ "$HVD_RANK" = 0 ] || exit 7; sleep 60'
    expect_status 7
    expect_err 'rank 1 on .*exit status 7'
    start --job-name contained -np 2 "$top/contrib/podman.sh" hvd-test sh -c 'trap "echo bye; exit 9" TERM; echo ready; while :; do sleep 0.1; done'
    until_out 30 ready 2
    "$BUILD/hvdctl" kill contained > /dev/null
    stop_status
    expect_count 2 '^bye$' "$T/out"
    until_true 10 no_container_is_left || fail "$($PODMAN ps)"
}

slow_why_sees_into_containers() {
    need_podman
    start --job-name seen -np 2 "$top/contrib/podman.sh" hvd-test "$BUILD/tests/culprit" stop 1
    until_out 30 ready 2
    seen() {
        "$BUILD/hvdctl" why seen > "$T/shown" 2>&1 < /dev/null
        head -n 1 "$T/shown" | grep -qE 'for rank 1 on localhost, which has a process culprit \(pid [0-9]+\) that is stopped$'
    }
    until_true 20 seen || fail "$(cat "$T/shown")"
    "$BUILD/hvdctl" kill --signal KILL seen > /dev/null 2>&1 || "$BUILD/hvdctl" kill seen > /dev/null
    stop_status
    until_true 15 no_container_is_left || fail "$($PODMAN ps)"
}

# With cgroup v2 alone, in a mount namespace: containers lie in the job's cgroup, and end with it when podman was killed.
slow_with_cgroup_2_nothing_outlives_the_job() {
    need_podman
    if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
        cat > "$T/hvdrun" << END
#!/bin/sh
exec unshare -m sh -c 'umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "\$0" "\$@"' $HVDRUN "\$@"
END
        chmod +x "$T/hvdrun"
        HVDRUN=$T/hvdrun
    fi
    hvd --verbose -np 2 "$top/contrib/podman.sh" hvd-test "$BUILD/examples/train" --steps 3
    expect_status 0
    expect_err 'containment cgroup'
    expect_no "$T/err" 'cannot remove'
    start --job-name splits -np 2 "$top/contrib/podman.sh" hvd-test sh -c 'trap "" TERM; echo ready; sleep 4321'
    until_out 30 ready 2
    ps -eo pid,args | awk '/^ *[0-9]+ podman .*--cgroups split.*sleep 4321/ {print $1}' | xargs kill -9
    stop_status
    expect_status 137
    ! ps -eo args | grep '^sleep 4321' || fail 'a container has outlived the job'
    expect_no "$T/err" 'cannot remove'
}

# contrib/Containerfile, on the same root in place of Debian's own image.
slow_images_of_the_packages() {
    local target
    need_podman
    ls "$BUILD"/deb/libhvd0_*.deb > /dev/null 2>&1 || skip 'no packages here: make deb'
    for target in worker head; do
        $PODMAN build --network host --isolation chroot --ulimit nofile=1024:1024 --build-arg BASE=localhost/hvd-test -f "$top/contrib/Containerfile" \
            --target $target -t hvd-$target "$BUILD/deb" > "$T/made" 2>&1 || fail "$(tail "$T/made")"
    done
    hvd -np 2 "$top/contrib/podman.sh" hvd-worker python3 -c 'import hvdrun; hvdrun.init(); print("rank", hvdrun.rank(), "of", hvdrun.size()); hvdrun.shutdown()'
    expect_status 0
    expect_count 2 '^rank [01] of 2$' "$T/out"
    $PODMAN run --rm --network host $PODMAN_OPTIONS hvd-head hvdrun -np 2 sh -c 'echo "$HVD_RANK of $HVD_SIZE"' > "$T/out" 2> "$T/err" || fail "$(cat "$T/err")"
    expect_count 2 '^[01] of 2$' "$T/out"
}

# What hvdrun tells a rank reaches the container by contrib/enroot.conf, but for places of the host.
case_the_configuration_of_enroot() {
    unset PYTHONUNBUFFERED OMP_NUM_THREADS # hvdrun sets them
    hvd -np 2 sh -c '[ $HVD_RANK = 0 ] || exit 0; . "$0"; mounts > "$1/mounts"; environ > "$1/within"; env > "$1/told"' \
        "$top/contrib/enroot.conf" "$T"
    expect_status 0
    env | cut -d= -f1 | sort > "$T/before"
    cut -d= -f1 "$T/within" | sort > "$T/passed"
    expect_same '' "$(cut -d= -f1 "$T/told" | sort | comm -23 - "$T/before" | comm -23 - "$T/passed" | tr '\n' ' ')" 'what the container does not get'
    expect_count 1 "^(/[^ ]*) \\1$" "$T/mounts"
    expect_count 1 '^OMP_NUM_THREADS=' "$T/within"
    expect_count 1 "^HVD_WORKER_SOCKET=$(cut -d' ' -f1 "$T/mounts")/" "$T/within"
}

case_wrong_usage() {
    run "$top/contrib/podman.sh" image true
    expect_status 2
    expect_err '^usage: hvdrun \[option ...\] .*podman.sh IMAGE COMMAND'
}
