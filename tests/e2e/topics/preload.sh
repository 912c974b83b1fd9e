# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --preload: every host gets the files before a worker starts, whole or not at all, and keeps none of them.

make_files() {
    mkdir -p "$T/far/away"
    printf '#!/bin/sh\necho "program $RANK $1"\n' > "$T/far/away/program"
    chmod +x "$T/far/away/program"
    head -c "${1:-3000000}" /dev/urandom > "$T/data"
    : > "$T/empty"
}

# Run inside of a mount namespace of its own, prepared by COMMANDS: where hosts get their files is small there.
elsewhere() { # COMMANDS
    needs_mounts
    # The agent stays in sight, wherever it was built.
    printf '#!/bin/sh\nexec unshare -m sh -c '\''mount -t tmpfs t /run; mkdir /run/hvd-kept; mount --bind %s /run/hvd-kept; %s\nexec "$@"'\'' x "$@"\n' "$BUILD" "$1" > "$T/prepare"
    printf '#!/bin/sh\nshift\nexec %s sh -c "$*"\n' "$T/prepare" > "$T/rsh"
    chmod +x "$T/prepare" "$T/rsh"
}

case_the_program_and_its_data() {
    make_files
    hvd --preload "$T/far/away/program" --preload "$T/data" --preload "$T/empty" -np 2 sh -c '
        cd "$HVD_PRELOAD_DIR"; sha256sum < data; stat -c "%n %a %s" *; ./program here; ls -d $PWD >&2'
    expect_status 0
    expect_count 2 "^$(sha256sum < "$T/data")\$" "$T/out"
    expect_count 2 '^program 700 [0-9]+$' "$T/out"
    expect_count 2 '^empty 600 0$' "$T/out"
    expect_out '^program 1 here$'
    [ ! -e "$(head -n 1 "$T/err")" ] || fail "the files are still there"
}

case_a_command_that_is_preloaded() {
    make_files
    hvd --preload "$T/far/away/program" -np 1 "$T/far/away/program" path : -np 1 ./program name : -np 1 sh -c 'exec "$HVD_PRELOAD_DIR/program" itself'
    expect_status 0
    expect_sorted 'program 0 path' 'program 1 name' 'program 2 itself'
    chmod -x "$T/far/away/program"
    hvd --preload "$T/far/away/program" -np 1 ./program
    expect_status 126
    expect_err 'cannot execute ./program: it is not executable'
}

case_files_that_cannot_be_copied() {
    make_files 10
    mkfifo "$T/fifo"
    cp "$T/data" "$T/far/data"
    bad_input "--preload: cannot open .*no-such-file: No such file" --preload "$T/no-such-file" touch "$T/started"
    bad_input "--preload: $T/far is a directory" --preload "$T/far" touch "$T/started"
    bad_input "--preload: $T/fifo is no regular file" --preload "$T/fifo" touch "$T/started"
    bad_input "--preload: $T/data and $T/far/data would both become data" --preload "$T/data" --preload "$T/far/data" touch "$T/started"
}

# Between its hash and its first byte on the way.
case_a_file_that_changes() {
    make_files
    printf '#!/bin/sh\nprintf x | dd of=%s bs=1 seek=5 conv=notrunc 2>/dev/null\nshift\nexec sh -c "$*"\n' "$T/data" > "$T/rsh"
    chmod +x "$T/rsh"
    hvd --rsh "$T/rsh" -H there:1 --preload "$T/data" touch "$T/started"
    expect_status 125
    expect_err "^hvdrun: --preload: $T/data has changed while it was copied$"
    printf '#!/bin/sh\n: > %s\nshift\nexec sh -c "$*"\n' "$T/data" > "$T/rsh"
    hvd --rsh "$T/rsh" -H there:1 --preload "$T/data" touch "$T/started"
    expect_status 125
    expect_err "^hvdrun: --preload: $T/data has changed while it was copied$"
    [ ! -e "$T/started" ] || fail "a worker was started"
}

case_a_host_without_room() {
    make_files
    elsewhere 'unset XDG_RUNTIME_DIR TMPDIR; mount -t tmpfs -o size=2m t /tmp; mkdir -p /run/user; mount -t tmpfs -o size=2m t /run/user'
    hvd --agent-path /run/hvd-kept/hvdagent --rsh "$T/rsh" -H small:1 --preload "$T/data" touch "$T/started"
    expect_status 125
    expect_err '^hvdrun: small: no room for 3000000 bytes of files in'
    [ ! -e "$T/started" ] || fail "a worker was started"
}

# What programs need is passed over where nothing can be executed.
case_a_place_that_executes() {
    make_files 10
    elsewhere 'mkdir -p /run/user; mount -t tmpfs -o noexec t /run/user; export XDG_RUNTIME_DIR=/run/user'
    hvd --agent-path /run/hvd-kept/hvdagent --rsh "$T/rsh" -H here:1 --preload "$T/data" sh -c 'echo $HVD_PRELOAD_DIR'
    expect_out '^/run/user/hvd-'
    hvd --agent-path /run/hvd-kept/hvdagent --rsh "$T/rsh" -H here:1 --preload "$T/far/away/program" ./program fine
    expect_status 0
    expect_out '^program 0 fine$'
}

case_with_restarts() {
    make_files
    hvd --max-restarts 1 --preload "$T/data" -np 2 sh -c 'echo "$HVD_EPOCH $(sha256sum < $HVD_PRELOAD_DIR/data)"; exit $((1 - HVD_EPOCH))'
    expect_status 0
    expect_count 2 "^1 $(sha256sum < "$T/data")\$" "$T/out"
}

# A job's own directory is not inherited by a job that is started in it.
case_a_job_in_a_job() {
    make_files 10
    hvd --preload "$T/data" -np 1 "$HVDRUN" -np 1 sh -c 'echo "dir:${HVD_PRELOAD_DIR-none}"'
    expect_out '^dir:none$'
}

# Longer than --start-timeout in all, and alive all the time.
slow_a_large_file_over_a_slow_way() {
    make_files 12000000
    # The socket does not block.
    echo 'while (1) { vec($r, 0, 1) = 1; select $r, undef, undef, undef; defined(sysread STDIN, $b, 20000) or next;
        last if $b eq ""; syswrite STDOUT, $b; select undef, undef, undef, 0.01 }' > "$T/slowly"
    printf '#!/bin/sh\nshift\nperl %s | sh -c "$*"\n' "$T/slowly" > "$T/rsh"
    chmod +x "$T/rsh"
    hvd --rsh "$T/rsh" -H slow:1 --start-timeout 2 --heartbeat-timeout 1 --preload "$T/data" sh -c 'sha256sum < $HVD_PRELOAD_DIR/data'
    expect_status 0
    expect_out "^$(sha256sum < "$T/data")\$"
}
