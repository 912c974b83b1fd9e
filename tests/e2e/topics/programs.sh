# shellcheck shell=bash disable=SC2034,SC2154
# Several programs in one job, on one host: each has its own command, environment, directory and ranks.
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

# shellcheck disable=SC2016
show='echo $0 $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE A=$A B=$B C=$C $PWD'

case_each_has_its_own() {
    mkdir "$T/d"
    export C=set
    hvd -np 2 -x A=1 --wdir / sh -c "$show" first : -np 1 -x B=2 --unset C --wdir "$T/d" sh -c "$show" second
    expect_status 0
    expect_no_err
    expect_sorted 'first 0/3 0/3 A=1 B= C=set /' 'first 1/3 1/3 A=1 B= C=set /' "second 2/3 2/3 A= B=2 C= $T/d"
}

case_what_a_variable_says_is_for_all() {
    HVDRUN_ENV=B=3 HVDRUN_WDIR=/ hvd -np 1 sh -c "$show" first : -np 1 -x A=1 sh -c "$show" second
    expect_sorted 'first 0/2 0/2 A= B=3 C= /' 'second 1/2 1/2 A=1 B=3 C= /'
}

case_the_first_that_fails_is_named_with_its_command() {
    hvd -np 1 sleep 20 : -np 1 sh -c 'exit 7'
    expect_status 7
    expect_err '^hvdrun: rank 1 on localhost \(sh, pid [0-9]+\) failed first: exit status 7'
    hvd -np 1 sh -c 'exit 6' : -np 1 sleep 20
    expect_status 6
    expect_err '^hvdrun: rank 0 on localhost \(sh, pid [0-9]+\) failed first: exit status 6'
}

case_each_is_looked_for_before_the_first_worker() {
    hvd -np 1 touch "$T/started" : -np 1 --wdir /no/such/place true : -np 1 no-such-program
    expect_status 125
    expect_fault 'localhost \(working directory\): cannot change to working directory /no/such/place: No such file'
    expect_fault 'localhost \(command\): command not found: no-such-program'
    [ ! -e "$T/started" ] || fail "a worker was started"
}

case_report_and_dry_run_name_all() {
    hvd --report "$T/report" -np 2 true : -np 1 --wdir / sh -c true
    expect_status 0
    tr -d ' \n' < "$T/report" > "$T/short"
    grep -qF '"programs":[{"first_rank":0,"ranks":2,"wdir":null,"command":["true"]},{"first_rank":2,"ranks":1,"wdir":"/","command":["sh","-c","true"]}]' "$T/short" ||
        fail "the report has other programs: $(head -c 400 "$T/short")"
    hvd --dry-run -np 2 a : -np 1 b c
    expect_out '^ranks: 3$'
    expect_out '^command of ranks 0-1: a$'
    expect_out '^command of rank 2: b c$'
}

case_hosts_of_their_own_in_the_plan() {
    hvd --dry-run -np 1 -H a:1 x : -np 2 -H c:2,b:1 y : -np 1 z
    expect_status 0
    expect_out '^a +ssh +1 +0$'
    expect_out '^c +ssh +2 +1-2$'
    expect_out '^b +ssh +1 +3$'
    hvd --dry-run -np 1 -H a:1 x : -np 2 -H b:1 y
    expect_status 2
    expect_err '^hvdrun: -np 2 of program 2 asks for more ranks than its hosts have slots left: 1$'
    printf 'a slots=2\nb slots=2\n' > "$T/hosts"
    hvd -hostfile "$T/hosts" -np 1 x : -np 1 -H c y
    expect_status 2
    expect_err "^hvdrun: -H of program 2 \\(y\\): c is none of the job's hosts$"
    hvd -np 1 -H a:1 x : -np 1 -H b: y
    expect_status 2
    expect_err "^hvdrun: -H of program 2 \\(y\\): 'b:': a number of slots is missing"
    hvd -np 1 -H a:1 x : -np 1 -H me@a y
    expect_err 'me@a was named before with another user'
    : > "$T/ranks"
    hvd --rankfile "$T/ranks" -np 1 x : -np 1 -H b y
    expect_status 2
    expect_err '^hvdrun: --rankfile says where each rank goes: -H of a program excludes it$'
    HVDRUN_HOSTS=a:2 hvd --dry-run -np 1 x : -np 1 y # a variable is of the job
    expect_out '^a +ssh +2 +0-1$'
}

case_each_again_after_a_restart() {
    # shellcheck disable=SC2016
    hvd --max-restarts 1 -np 1 sh -c 'echo a$HVD_EPOCH' : -np 1 sh -c 'echo b$HVD_EPOCH; sleep 0.2; exit $((1 - HVD_EPOCH))'
    expect_status 0
    expect_sorted a0 a1 b0 b1
}

numbers() { # of the programs, as the library has them
    hvd -np 2 "$program" : -np 1 "$program" one : -np 1 "$program"
    expect_status 0
    expect_no_mpi_err
    expect_sorted '0 of program 0, sum 3' '1 of program 0, sum 3' '2 of program 1, sum 3' '3 of program 2, sum 3'
}

case_openmpi_knows_which_is_which() {
    mpi_program mpi_programs
    numbers
}

case_mpich_knows_which_is_which() {
    mpich_program mpi_programs
    numbers
}
