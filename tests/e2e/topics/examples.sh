# The files of contrib/, each run as a user would: in a directory with a program, hvdrun on PATH. Slurm's is in the topic slurm,
# Kubernetes's in lint and in the topic kubernetes, because they need what they are for.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
limit=45

desk() { # a directory as a user has one
    cp -r "$top/contrib" "$T"
    ln -s "$TRAIN" "$T/train"
    cd "$T" || exit 1
    PATH=$BUILD:$PATH
}

case_plain() {
    desk
    RANKS=2 run contrib/plain.sh ./train --steps 5
    expect_status 0
    expect_no_err
    expect_out '^\[0\]<stdout>:.*loss='
    run contrib/plain.sh sh -c 'echo "of $WORLD_SIZE"'
    expect_sorted '[0]<stdout>:of 4' '[1]<stdout>:of 4' '[2]<stdout>:of 4' '[3]<stdout>:of 4'
}

case_config_file() {
    desk
    run hvdrun --config-file contrib/train.conf ./train --steps 5
    expect_status 0
    expect_no_err
    expect_out 'loss='
}

# Whatever is put there later must be run somewhere.
case_every_file_has_a_test() {
    local file
    for file in "$top"/contrib/*; do
        file=${file##*/}
        case $file in kubernetes.yaml) continue ;; systemd) continue ;; install.mk | wheel | debian | rpm | release) continue ;; esac # topics kubernetes, systemd, library; tests/{wheel,deb,rpm,release}.sh
        grep -qE "contrib/$file( |\"|\$)" "$top"/tests/e2e/topics/{containers,examples,examples_hosts,reach_hosts,slurm}.sh || fail "no test runs contrib/$file"
    done
}
