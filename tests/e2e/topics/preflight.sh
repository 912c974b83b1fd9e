# shellcheck shell=bash disable=SC2034,SC2154
# Before the first worker: what is wrong on any host is said of all of them at once, in one table.
hosts=4
limit=45

# node1 is right and starts nothing; of the others each has a fault of its own.
case_the_faults_of_all_hosts_at_once() {
    needs_kind ns
    local dir=/srv/job tool=/usr/local/bin/four-hosts
    on 1 "mkdir $dir; printf '#!/bin/sh\ntouch $T/started\nsleep 60\n' > $tool; chmod +x $tool"
    on 2 "mkdir $dir"
    on 3 "printf '#!/no/such/python\n' > $tool; chmod +x $tool"
    on 4 "mkdir $dir; printf '#!/bin/sh\n' > $tool"
    hvd --wdir $dir -H $H1:1,$H2:1,$H3:1,$H4:1,no-such-host.invalid:1 four-hosts
    for host in 1 2 3 4; do on $host "rm -rf $dir $tool"; done
    expect_status 125
    expect_err "^hvdrun: what is wrong on $H2, $H3, $H4, no-such-host.invalid:$"
    expect_fault "$H2 \(command\): command not found: four-hosts install"
    expect_fault "$H3 \(working directory\): cannot change to working directory $dir: No such file or directory make it"
    expect_fault "$H3 \(interpreter\): cannot execute [^ ]*four-hosts: its interpreter /no/such/python does not exist"
    expect_fault "$H4 \(command\): cannot execute four-hosts: Permission denied make it executable: chmod \+x four-hosts$"
    expect_fault 'no-such-host.invalid \(resolve\): (cannot resolve its name|no such host): '
    expect_err '^hvdrun: 5 faults on 4 hosts; no worker was started$'
    [ "$(grep -oE '^hvdrun:   (node[234]|no-such-host.invalid)' "$T/err" | cut -c11- | tr '\n' ' ')" = "node2 node3 node3 node4 no-such-host.invalid " ] ||
        fail "not in the order of the hosts"
    [ ! -e "$T/started" ] || fail "a worker was started"
}

# Two that cannot execute it end as in a shell: not found is the stronger word.
case_a_command_that_no_host_can_run() {
    needs_kind ns
    on 2 'touch /usr/local/bin/none-has-it'
    hvd -H $H1:1,$H2:1 none-has-it
    on 2 'rm /usr/local/bin/none-has-it'
    expect_status 127
    expect_err '2 faults on 2 hosts'
    on 1 'touch /usr/local/bin/none-has-it'
    hvd -H $H1:1 none-has-it
    on 1 'rm /usr/local/bin/none-has-it'
    expect_status 126
    expect_err "^hvdrun: $H1: cannot execute none-has-it: Permission denied$"
    expect_err '^hvdrun: hint: make it executable: chmod \+x none-has-it$'
}

# A host that no rank is placed on may lack what it likes; one that cannot answer does not keep the others' faults back.
case_what_does_not_count_and_what_does_not_wait() {
    needs_kind ns
    on 1 "printf '#!/bin/sh\n' > /usr/local/bin/one; chmod +x /usr/local/bin/one"
    hvd -np 2 -H $H1:2,$H2:2 one
    expect_status 0
    ip neigh replace 10.91.200.200 lladdr 02:00:00:00:ff:ff nud permanent dev br0 # nobody has that one
    mark_time
    hvd -H $H1:1,$H2:1,$H3:1,no-such-host.invalid:1,10.91.200.200:1 --start-timeout 20 one
    ip neigh del 10.91.200.200 dev br0
    on 1 'rm /usr/local/bin/one'
    expect_status 125
    expect_err '^hvdrun: 3 faults on 3 hosts; no worker was started \(1 host had not answered\)$'
    expect_within 12
}

# Each host would start its ranks in its own home directory, and somewhere else than the others.
case_a_directory_that_other_hosts_lack() {
    needs_kind ns
    local dir=/srv/only-here
    mkdir -p $dir
    cd $dir || return
    hvd -H $H1:1,$H2:1 sh -c "touch $T/started"
    expect_status 125
    one_clear_line "^hvdrun: $H1, $H2: cannot change to $dir, where hvdrun was started: No such file or directory \\(--wdir names another directory\\)$" 'two hosts'
    expect_err '^hvdrun: hint: make it there, .*--wdir-or-home'
    on 1 "mkdir $dir"
    hvd -np 2 -H $H1:1,$H2:1 sh -c "touch $T/started"
    expect_status 125
    one_clear_line "^hvdrun: $H2: cannot change to $dir, " 'one host'
    hvd -np 1 -H $H1:1,$H2:1 pwd # none is placed on the other one
    expect_sorted $dir
    hvd -H $H1:1,$H2:1 --wdir sub pwd
    expect_status 125
    expect_fault "$H2 \(working directory\): cannot change to $dir, where hvdrun was started"
    [ ! -e "$T/started" ] || fail 'a worker was started'
    hvd -H $H1:1,$H2:1 --wdir /srv pwd
    expect_sorted /srv /srv
    hvd -H $H1:1,$H2:1 --wdir-or-home sh -c 'pwd; cd; pwd'
    expect_sorted $dir /root /root /root
    HVDRUN_WDIR_OR_HOME=1 hvd -H $H2:1 pwd
    expect_sorted /root
    cp /bin/pwd where # what is copied there needs no directory that they share
    hvd -H $H2:1 --preload where ./where
    expect_sorted /root
    on 1 "rmdir $dir"
    hvd -np 1 pwd
    expect_sorted $dir
    cd / && rm -r $dir
}
