# shellcheck shell=bash disable=SC2034,SC2154
# Several programs in one job on two hosts: who runs what, and what a host without a program need not have.
hosts=2
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

# shellcheck disable=SC2016
show='echo $0 $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE A=$A $PWD'

case_over_the_border_of_hosts() {
    hvd -H $H1:2,$H2:2 --tag host -np 1 -x A=1 --wdir / sh -c "$show" a : -np 3 -x A=2 --wdir /tmp sh -c "$show" b
    expect_status 0
    expect_no_err
    expect_sorted "[0@$H1]<stdout>:a 0/4 0/2 A=1 /" "[1@$H1]<stdout>:b 1/4 1/2 A=2 /tmp" \
        "[2@$H2]<stdout>:b 2/4 0/2 A=2 /tmp" "[3@$H2]<stdout>:b 3/4 1/2 A=2 /tmp"
}

case_on_hosts_of_their_own() {
    hvd --tag host -np 1 -H $H2:1 sh -c "$show" a : -np 2 -H $H1:2 sh -c "$show" b : -np 1 -H $H2:2 sh -c "$show" c
    expect_status 0
    expect_no_err
    expect_sorted "[0@$H2]<stdout>:a 0/4 0/2 A= $PWD" "[1@$H1]<stdout>:b 1/4 0/2 A= $PWD" \
        "[2@$H1]<stdout>:b 2/4 1/2 A= $PWD" "[3@$H2]<stdout>:c 3/4 1/2 A= $PWD"
    printf '%s slots=2\n%s slots=2\n' "$H1" "$H2" > "$T/hosts"
    hvd -hostfile "$T/hosts" --tag host -np 1 -H $H2 echo a : -np 1 echo b
    expect_status 2
    expect_err '^hvdrun: -hostfile and -H both name the hosts'
    hvd -hostfile "$T/hosts" --tag host -np 1 echo a : -np 1 -H $H2 echo b
    expect_status 0
    expect_sorted "[0@$H1]<stdout>:a" "[1@$H2]<stdout>:b"
}

case_the_failing_one_of_another_host() {
    hvd -H $H1:1,$H2:1 -np 1 sleep 20 : -np 1 sh -c 'exit 9'
    expect_status 9
    expect_err "^hvdrun: rank 1 on $H2 \\(sh, pid [0-9]+\\) failed first: exit status 9"
}

case_only_where_it_runs() {
    needs_kind ns
    local tool=/usr/local/bin/only-here dir=/srv/only-here
    on 2 "mkdir $dir; printf '#!/bin/sh\necho here \$RANK\n' > $tool; chmod +x $tool"
    hvd -H $H1:1,$H2:1 -np 1 echo there : -np 1 --wdir $dir only-here
    local first=$status
    cp "$T/out" "$T/good"
    hvd -H $H1:1,$H2:1 -np 1 --wdir $dir only-here : -np 1 echo there
    on 2 "rm -rf $dir $tool"
    expect_same 'here 1 there' "$(sort "$T/good" | tr '\n' ' ' | sed 's/ $//')" 'the output'
    [ "$first" = 0 ] || fail "exit status $first"
    expect_status 125
    expect_fault "$H1 \(working directory\): cannot change to working directory $dir"
    expect_fault "$H1 \(command\): command not found: only-here"
    expect_no "$T/err" "^hvdrun:   .*$H2"
}

case_keys_of_pmix() {
    pmix_program
    hvd -H $H1:2,$H2:2 -np 1 "$program" programs 1 2 1 : -np 2 "$program" programs 1 2 1 : -np 1 "$program" programs 1 2 1
    expect_status 0
    expect_count 4 '^[0-3]/4 good$' "$T/out"
    expect_no_err
}

case_openmpi_knows_which_is_which() {
    mpi_program mpi_programs
    [ "$(openmpi_version)" -lt 5 ] || needs_kind ns # its version 5 finds no way between two addresses of one machine
    hvd -H $H1:2,$H2:2 --map-by node -np 1 "$program" : -np 3 "$program"
    expect_status 0
    expect_sorted '0 of program 0, sum 3' '1 of program 1, sum 3' '2 of program 1, sum 3' '3 of program 1, sum 3'
}
