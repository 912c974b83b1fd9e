# shellcheck shell=bash disable=SC2034,SC2154
# Bad input gets one clear line, at most a hint, exit status 2, and nothing is started.
limit=40

bad() { # REGEX OPTIONS...: with a command that would leave a trace
    bad_input "$@" touch "$T/started"
}

case_unknown_options() {
    bad 'no-such' --no-such
    bad '-Z' -Z
    bad 'npp' -npp 2
    bad 'hosts-file' --hosts-file x
}

case_misspelled_option_names_the_near_one() {
    bad 'hostfil' --hostfil x
}

case_np() {
    local value
    for value in 0 -3 x 1000000000 '' 2x 1.5 ' 2' 99999999999999999999 +2e1; do
        bad '-np' -np "$value"
    done
    bad_input '-np' -np
}

case_np_says_the_range() {
    bad '1 to [0-9]+' -np 0
}

case_more_ranks_than_slots() {
    bad '5.*4|4.*5' -np 5 -H localhost:4
    bad '4.*3|3.*4' -np 4 -H localhost:1,127.0.0.1:2
    echo 'localhost slots=2' > "$T/hosts"
    bad '3.*2|2.*3' -np 3 --hostfile "$T/hosts"
}

case_hosts() {
    local value
    for value in 'a:' 'a:-1' 'a:x' '[::1:2' '' 'a:0' ',' 'a,,b' 'a:1,' '@a:1' 'user@:1' 'a:99999999999' 'a b:1' '-oProxyCommand=x:1' '[]:1' 'a:1:2'; do
        bad "" -H "$value"
        head -n 1 "$T/err" | grep -qF -- "${value:-empty}" || head -n 1 "$T/err" | grep -qE 'empty|-H|host' ||
            fail "-H '$value': the message does not show it: $(cat "$T/err")"
    done
}

case_hostfile_that_cannot_be_read() {
    bad "$T/none" --hostfile "$T/none"
    bad "$T" --hostfile "$T"
    [ "$(id -u)" = 0 ] && return
    echo a > "$T/secret"
    chmod 0 "$T/secret"
    bad "$T/secret" --hostfile "$T/secret"
}

case_hostfile_faults_name_file_and_line() {
    local text
    for text in 'a slots=x' 'a slots=' 'a slots=-1' 'a slotz=2' 'a:2:3' 'a slots=4 max_slots=2' 'a slots=2 slots=3' '[::1:2' 'a b'; do
        printf '# first\n\nok slots=1\n%s\n' "$text" > "$T/hosts"
        bad "$T/hosts:4|$T/hosts.*line 4" --hostfile "$T/hosts"
    done
    : > "$T/hosts"
    bad "$T/hosts" --hostfile "$T/hosts"
    printf '# only\n\n# comments\n' > "$T/hosts"
    bad "$T/hosts" --hostfile "$T/hosts"
    head -c 3000 /dev/urandom > "$T/hosts"
    bad "$T/hosts" --hostfile "$T/hosts"
}

case_both_hosts_and_hostfile() {
    echo localhost > "$T/hosts"
    bad '(-H|--hosts).*--hostfile|--hostfile.*(-H|--hosts)' -H localhost:1 --hostfile "$T/hosts"
}

case_no_command() {
    bad_input 'command'
    bad_input 'command' -np 2
    bad_input 'command' -np 2 --
    bad_input 'command|empty' -np 2 ''
}

case_values_out_of_range_name_option_and_range() {
    local row option value
    for row in '--ssh-port 0' '--ssh-port 65536' '--ssh-port x' '-p -1' '--start-timeout 0' '--start-timeout x' \
        '--start-timeout -5' '--timeout x' '--timeout -1' '--stdin maybe' '--stdin -1' '--tag colour' '--log-level loud' \
        '--grace x' '--heartbeat-timeout 0'; do
        option=${row% *} value=${row#* }
        bad "${option#-}" "$option" "$value"
        # What would have been right: a range or the words.
        grep -qE '[0-9]+ (to|and|or) [0-9]+|[0-9]+\.\.[0-9]+|, |\||one of|number|none|rank|seconds' "$T/err" ||
            fail "$row: does not say what is allowed: $(cat "$T/err")"
    done
}

case_options_without_their_value() {
    local option
    for option in -H --hostfile -p -i --rsh --agent-path --start-timeout --output-filename --tag --stdin -x --unset --wdir --timeout --log-level; do
        bad_input "${option#-}" "$option"
    done
}

case_flags_with_a_value() {
    bad 'verbose' --verbose=3
    bad 'dry-run' --dry-run=maybe
}

case_bad_environment_names() {
    bad '-x' -x '=value'
    bad '-x' -x ''
    bad '--unset' --unset ''
}

case_stdin_rank_outside_the_job() {
    bad 'stdin.*4|4.*stdin' -np 4 --stdin 4
}

case_output_directory_that_cannot_be_made() {
    : > "$T/file"
    hvd -np 1 --output-filename "$T/file/below" touch "$T/started"
    [ "$status" != 0 ] || fail "succeeded"
    one_clear_line "$T/file" 'bad --output-filename'
    [ ! -e "$T/started" ] || fail "started all the same"
}

case_control_characters_do_not_reach_the_terminal() {
    bad '' -H $'a\e[31m:x'
    expect_no "$T/err" $'\e'
}

case_bad_values_from_variables_name_the_variable() {
    HVDRUN_NUM_PROC=x bad 'HVDRUN_NUM_PROC'
}

case_a_bad_list_of_hosts_in_the_environment_is_named() {
    HVDRUN_HOSTS=a:x
    export HVDRUN_HOSTS
    bad '^hvdrun: HVDRUN_HOSTS: .a:x.: the slots'
    bad '^hvdrun: -H/--hosts: .b:y.: the slots' -H b:y
}
