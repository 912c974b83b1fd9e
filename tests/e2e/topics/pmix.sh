# shellcheck shell=bash disable=SC2034,SC2154
# Clients of PMIx itself on two hosts, a case for each part of its interface.
hosts=2
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

clients() { # MODE [OPTION of hvdrun...]
    local mode=$1
    shift
    pmix_program
    hvd "$@" -H $H1:2,$H2:2 "$program" "$mode"
}

goes_well() { # MODE
    clients "$1"
    expect_status 0
    expect_count 4 '^[0-3]/4 good$' "$T/out"
    expect_no_err
}

slow_keys_of_job_node_and_rank() { goes_well keys; }
case_fence_with_and_without_data() { goes_well fence; }
slow_fences_of_subsets() { goes_well subsets; }
slow_fence_with_a_time_out() { goes_well timeout; }
slow_a_time_out_of_one_host_ends_all() { goes_well timeout_of_one; }
case_links_that_break_are_told_of() {
    needs_kind ns
    pmix_program
    start -H $H1:2,$H2:2 "$program" lost_links
    until_out 20 '^# rank [0-3] waits' 4
    # All connections of the hosts but those of SSH.
    on 1 'ss -HnK state established "not ( dport = :22 or sport = :22 or dst 127.0.0.1 )"' > "$T/killed" 2>&1
    stop_status
    [ -s "$T/killed" ] || skip "this kernel cannot end a connection"
    expect_status 0
    expect_count 4 '^[0-3]/4 good$' "$T/out"
    expect_count 1 '^hvdrun: warning: .*its ranks cannot wait for those of other hosts any more: ' "$T/err"
    grep 'any more' "$T/err" | sed 's/^/# /'
}

# A crash of the library: the session lives, and says what happened.
server_gets() { # SIGNAL [MODE]
    needs_kind ns # the servers of loopback hosts cannot be told apart
    pmix_program
    start --heartbeat-timeout 5 -H $H1:2,$H2:2 "$program" "${2:-lost_links}"
    until_out 20 '^# rank [0-3] waits' 4
    on 2 "grep -lx hvd-pmix /proc/[0-9]*/comm" | cut -d/ -f3 > "$T/server"
    [ "$(wc -l < "$T/server")" = 1 ] || fail "the servers of host 2 are: $(tr '\n' ' ' < "$T/server")"
    on 2 "kill -$1 $(cat "$T/server")"
    stop_status
    expect_status 125
    sed 's/^/# /' "$T/err"
}

case_a_server_that_crashes_ends_the_job() {
    server_gets ABRT # a sanitizer would catch SIGSEGV
    expect_count 1 "^hvdrun: host $H2: the PMIx server \\(pid $(cat "$T/server")\\) was killed by signal 6 \\(Aborted\\); rank [23] had sent to it last$" "$T/err"
}

slow_a_server_that_does_not_move_ends_the_job() {
    server_gets STOP wait
    expect_count 1 "^hvdrun: host $H2: the PMIx server \\(pid $(cat "$T/server")\\) did not move for [0-9.]+ s and was killed; rank [23] had sent to it last$" "$T/err"
}

case_direct_modex() { goes_well modex; }
slow_what_does_not_exist() { goes_well missing; }
slow_ten_thousand_keys_and_a_megabyte() { goes_well large; }
case_publish_lookup_unpublish() { goes_well publish; }
case_events() { goes_well event; }
slow_query() { goes_well query; }
slow_groups_and_connect() { goes_well group; }
slow_job_control() { goes_well control; }

case_spawn_is_refused() {
    clients spawn
    expect_status 0
    expect_count 4 '^[0-3]/4 good$' "$T/out"
    expect_count 1 'PMIx_Spawn are not offered' "$T/err"
}

slow_abort() {
    clients abort
    expect_status 9
    expect_err "^hvdrun: rank 1 on $H1 .*exit status 9"
}

says() { # WAY [OPTION of hvdrun...]
    [ -e "$BUILD/modules/hvd-pmix" ] || skip "this build has no PMIx (apt-get install libpmix-dev)"
    compiled pmix_says pmix_compiler
    hvd --on-failure continue "${@:2}" -H $H1:1,$H2:1 "$program" "$1"
    expect_status 3
}

case_what_ranks_say_by_their_library() {
    says stderr --tag rank
    expect_err '^\[0\]<stderr>:rank 0 says it by stderr$'
    expect_err '^\[1\]<stderr>:and ends$'
    expect_err '^hvdrun:   rank 1 says it by stderr$'
    says stdout --tag rank
    expect_out '^\[1\]<stdout>:rank 1 says it by stdout$'
    says elsewhere
    expect_count 2 '^[01]: .*NOT.SUPPORTED' "$T/out"
    expect_no "$T/err" 'says it'
    says garbage
    expect_count 2 '^[01]: .*NOT.SUPPORTED' "$T/out"
}

case_what_they_say_is_bounded() {
    says long
    [ "$(grep '^xxxx' "$T/err" | awk "{ print (length > 10000 && length <= 16384) }" | sort -u)" = 1 ] || fail 'the letters are not cut'
    expect_err '^\[what follows is left out: it is too long\]$'
    expect_no "$T/err" '^the last line$'
    says many --tag rank
    expect_count 1000 '^\[0\]<stderr>:word [0-9]+ of many$' "$T/err"
    says closed
    expect_err "^hvdrun: warning: $H2: rank 1: rank 1 says it by closed$"
    expect_err "^hvdrun: warning: $H2: rank 1: and ends$"
}

slow_death_is_an_event() {
    clients death --on-failure continue
    expect_status 137
    expect_count 3 '^[0-2]/4 good$' "$T/out"
}

slow_a_rank_that_never_came_ends_a_fence() {
    clients dead_before --on-failure continue
    expect_status 137
    expect_count 2 '^[12]/4 good$' "$T/out"
    grep '^# ' "$T/out"
}

case_a_dead_rank_ends_a_fence() {
    clients dead_fence --on-failure continue
    expect_status 137
    expect_count 3 '^[0-2]/4 good$' "$T/out"
    grep '^# ' "$T/out"
}
