# The files of contrib/ that need hosts. Those in hosts.txt are called as the namespaced ones are.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=2
limit=60

# shellcheck source=tests/e2e/topics/examples.sh
. "$top/tests/e2e/topics/examples.sh"
unset -f case_plain case_config_file case_every_file_has_a_test

case_hostfile() {
    needs_kind ns
    desk
    run contrib/hosts.sh sh -c 'echo "$RANK of $WORLD_SIZE on $(hostname)"'
    expect_status 0
    expect_no_err
    expect_sorted '[0@node1]<stdout>:0 of 4 on node1' '[1@node1]<stdout>:1 of 4 on node1' '[2@node2]<stdout>:2 of 4 on node2' '[3@node2]<stdout>:3 of 4 on node2'
    run hvdrun --hostfile contrib/hosts.txt ./train --steps 5 # as contrib/hosts.txt says itself
    expect_status 0
    expect_out 'loss='
}

slow_pbs() {
    needs_kind ns
    desk
    printf 'node1\nnode1\nnode2\nnode2\n' > nodes
    cd / || exit 1
    PBS_JOBID=7.server PBS_NODEFILE=$T/nodes PBS_O_WORKDIR=$T run bash "$T/contrib/pbs.sh" # contrib/pbs.sh
    expect_status 0
    expect_err 'hosts from PBS job'
    expect_out 'loss='
}
