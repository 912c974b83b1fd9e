# shellcheck shell=bash disable=SC2034,SC2154
# What a user meant: the line that says what is wrong comes with the remedy, and most faults are found before the start.
alone=1
limit=40

hint() { # TEXT: the last line of stderr
    expect_same "hvdrun: hint: $1" "$(tail -n 1 "$T/err")" 'the hint'
}

refused() { # STATUS HINT ARGUMENTS...
    hvd "${@:3}"
    expect_status "$1"
    hint "$2"
}

case_a_script_that_is_no_command() {
    echo 'print("hi")' > train.py
    refused 127 'python3 train.py?' -np 2 train.py
    refused 126 'python3 ./train.py? Or make it executable: chmod +x ./train.py' -np 2 ./train.py
    chmod +x train.py
    refused 126 'python3 ./train.py? Or give it a first line: #!/usr/bin/env python3' -np 2 ./train.py
    mkdir -p sub
    refused 126 'name a program in it' ./sub
    printf 'echo hi\n' > run.sh
    refused 127 'sh run.sh?' run.sh
    printf '\177ELF' > tool
    chmod +x tool
    refused 127 './tool?' tool
}

case_a_command_that_is_not_there() {
    refused 127 'check its path, and that it is on that host' /no/such/file
    refused 127 "it was looked for in $PWD; --wdir names another directory" ./not/here
    refused 127 'each variable has an -x of its own: -x B=2' -x A=1 B=2 true
    hvd no-such-command
    expect_status 127
    expect_err '^hvdrun: hint: install it there, or give its whole path \(PATH is .*\)$'
}

case_flags_of_other_launchers() {
    refused 2 "torchrun's --nproc-per-node is -np here, the number of all ranks: -np 8 -H node1:4,node2:4" --nproc-per-node 2 true
    refused 2 '--hostfile FILE takes the same file' -machinefile hosts true
    refused 2 "hvdrun starts no mpirun; Open MPI's own library reads -x OMPI_MCA_NAME=VALUE" --mca btl self true
    refused 2 'python3 -m MODULE is the command: hvdrun -np 2 python3 -m MODULE' -m module
    refused 2 '--ppr N starts N ranks on each host' -ppn 2 true
    refused 2 '-x NAME=VALUE gives ranks a variable' -genv A 1 true
    hvd -p22 true # an attached value is still one
    expect_status 0
}

case_files_that_are_not_there() {
    bad_input '^hvdrun: -i /no/file: cannot read the key: No such file or directory$' -i /no/file touch "$T/started"
    bad_input '^hvdrun: --report /no/dir/x.json: cannot write in /no/dir/: No such file or directory$' \
        --report /no/dir/x.json touch "$T/started"
    hvd --report "$T/x.json" true
    expect_status 0
    [ -s "$T/x.json" ] || fail 'there is no report'
}

case_loopback_with_another_host() {
    refused 2 'name an interface or a network that all hosts have, as in 10.0.0.0/8, or leave it out' \
        --network-interface lo -H localhost:1,192.0.2.7:1 touch "$T/started"
    expect_err '^hvdrun: --network-interface lo: host 192.0.2.7 cannot be reached over the loopback of this one$'
    hvd --network-interface lo -np 2 true
    expect_status 0
}

# With files alone the resolver knows at once that there is no such name.
case_a_name_that_does_not_exist() {
    [ "$(id -u)" = 0 ] || skip 'needs root'
    echo 'hosts: files' > nsswitch
    # shellcheck disable=SC2016
    in_files() { unshare -m bash -c 'mount --bind nsswitch /etc/nsswitch.conf; exec "$@"' bash "$HVDRUN" "$@" > "$T/out" 2> "$T/err"; status=$?; }
    mark_time
    in_files -np 1 -H nod1:1 touch "$T/started"
    expect_status 125
    expect_within 6
    expect_err '^hvdrun: nod1 does not resolve \(Name or service not known\); trying for 3 s \(--resolve-timeout\)$'
    expect_err '^hvdrun: nod1: resolve: no such host: Name or service not known$'
    hint 'check the spelling, DNS and /etc/hosts; --resolve-timeout waits longer for a name that is being made'
    mark_time
    in_files --resolve-timeout 0 -np 1 -H nod1:1 touch "$T/started"
    expect_status 125
    expect_within 2
    in_files --resolve-timeout 0 -np 3 -H nod1:1,nod2:1,nod3:1 touch "$T/started"
    expect_fault 'nod1, nod2, nod3 \(resolve\): no such host: Name or service not known check the spelling'
}

case_a_temporary_directory_that_is_full_or_read_only() {
    [ "$(id -u)" = 0 ] || skip 'needs root'
    mkdir "$T/other"
    cat > script <<-'END'
	unset XDG_RUNTIME_DIR TMPDIR
	mount -t tmpfs none /run/user || exit 77
	mount --bind "$1" /mnt || exit 77
	mount --bind "${4%/*}" /media || exit 77 # it may lie in /tmp
	cd /
	mount -t tmpfs -o "$2" none /tmp || exit 77
	head -c 9000 /dev/zero > /tmp/full 2> /dev/null
	[ -z "$3" ] || export TMPDIR=/mnt
	exec "/media/${4##*/}" sh -c 'ls -d /mnt/hvd-* 2>/dev/null; echo fine'
	END
    in_tmp() { unshare -m bash "$T/script" "$T/other" "$@" "$HVDRUN" > "$T/out" 2> "$T/err"; status=$?; }
    in_tmp ro,size=64k ''
    expect_status 125
    expect_err '^hvdrun: localhost: cannot make a directory for the job in /tmp/hvd-0: Read-only file system$'
    hint 'TMPDIR or XDG_RUNTIME_DIR can name another place there than /tmp'
    in_tmp size=12k ''
    expect_status 125
    expect_err '^hvdrun: localhost: cannot make a directory for the job in /tmp/hvd-0: No space left on device$'
    in_tmp size=12k yes
    expect_status 0
    expect_sorted /mnt/hvd-0 fine
}

case_ranks_that_go_on_after_an_interrupt() {
    start --grace 8 -np 2 sh -c 'trap "" INT TERM; echo ready; while :; do sleep 0.2; done'
    until_out 10 ready 2
    kill -INT $pid
    until_true 5 grep -qE '^hvdrun: 2 ranks still run; hvdrun kills them in 7.5 s, and at once after another \^C$' "$T/err" ||
        fail 'nobody says how long it takes'
    mark_time
    kill -INT $pid
    stop_status
    expect_status 130
    expect_within 3
}

case_nobody_reads_the_output() {
    "$HVDRUN" -np 4 sh -c 'while :; do echo line; done' 2> "$T/err" | head -n 2 > "$T/out"
    status=${PIPESTATUS[0]}
    expect_status 141
    expect_no_err
}

# As in a container of Docker, and with one MiB more.
case_a_container_with_little_shared_memory() {
    unshare -m true 2> "$T/why" || skip "no mount namespace of our own: $(cat "$T/why")"
    # shellcheck disable=SC2016 # of the other shell
    run unshare -m sh -c 'mount -t tmpfs -o size="$0" shm /dev/shm && exec "$@"' 64m "$HVDRUN" -np 2 true
    expect_status 0
    expect_count 1 '^hvdrun: warning: localhost: /dev/shm has 64 MiB: .*--shm-size' "$T/err"
    # shellcheck disable=SC2016
    run unshare -m sh -c 'mount -t tmpfs -o size="$0" shm /dev/shm && exec "$@"' 65m "$HVDRUN" -np 2 true
    expect_no "$T/err" shm
}
