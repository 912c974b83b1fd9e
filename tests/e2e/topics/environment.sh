# shellcheck shell=bash disable=SC2034,SC2154
# -x, --unset, --wdir: what workers find around them.

case_workers_get_hvdruns_environment() {
    MINE='a b=c' hvd -np 2 printenv MINE
    expect_status 0
    expect_count 2 '^a b=c$' "$T/out"
}

case_x_sets_a_value() {
    hvd -x COLOUR=blue -x EMPTY= -np 2 sh -c 'echo "$COLOUR.${EMPTY-unset}."'
    expect_count 2 '^blue\.\.$' "$T/out"
}

case_x_brings_a_filtered_variable_back() {
    SLURM_PROCID=5 hvd -x SLURM_PROCID -np 1 printenv SLURM_PROCID
    expect_status 0
    expect_out '^5$'
}

case_x_with_a_prefix() {
    AB_1=one AB_2=two hvd --unset 'AB_*' -x 'AB_2*' -np 1 env
    expect_out '^AB_2=two$'
    expect_no "$T/out" '^AB_1='
}

case_unset() {
    SECRET=x SECRETS=y hvd --unset SECRET -np 1 env
    expect_no "$T/out" '^SECRET='
    expect_out '^SECRETS=y$'
}

case_x_is_stronger_than_unset() {
    A=1 hvd --unset A -x A=2 -np 1 printenv A
    expect_out '^2$'
}

case_a_large_environment() {
    local big
    big=$(printf 'x%.0s' $(seq 100000))
    BIG=$big hvd -np 2 sh -c 'echo ${#BIG}'
    expect_status 0
    expect_count 2 '^100000$' "$T/out"
}

case_arguments_arrive_as_they_are() {
    hvd -np 1 printf '[%s]' 'a b' '' "it's" '$HOME' $'new\nline' '*' '\' '"' '--help' -H
    expect_status 0
    expect_same "$(printf '[%s]' 'a b' '' "it's" '$HOME' $'new\nline' '*' '\' '"' '--help' -H)" "$(cat "$T/out")" 'what the worker got'
}

case_double_dash_ends_options() {
    hvd -np 1 -- echo -np 3
    expect_out '^-np 3$'
}

case_workers_start_where_hvdrun_was() {
    mkdir -p "$T/here it is"
    cd "$T/here it is" || exit 1
    hvd -np 2 pwd
    expect_count 2 "^$T/here it is\$" "$T/out"
}

case_wdir() {
    mkdir -p "$T/there"
    hvd --wdir "$T/there" -np 2 pwd
    expect_count 2 "^$T/there\$" "$T/out"
}

case_a_relative_command_is_found_from_the_wdir() {
    mkdir -p "$T/there"
    printf '#!/bin/sh\necho found\n' > "$T/there/tool"
    chmod +x "$T/there/tool"
    hvd --wdir "$T/there" -np 2 ./tool
    expect_count 2 '^found$' "$T/out"
}

case_options_from_variables() {
    HVDRUN_NUM_PROC=3 hvd echo x
    expect_count 3 '^x$' "$T/out"
    HVDRUN_NUM_PROC=3 hvd -np 2 echo x
    expect_count 2 '^x$' "$T/out"
}

# hvdrun raises its own limit for hosts and files; who trusts in select(2) is not to notice.
case_the_limit_of_descriptors_is_the_users() {
    run bash -c 'ulimit -Sn 200; exec "$@"' bash "$HVDRUN" -np 1 sh -c 'ulimit -Sn'
    expect_status 0
    expect_out '200$'
}
