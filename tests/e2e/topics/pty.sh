# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --pty: one rank has a terminal, where it runs; ours is raw meanwhile, and always as it was afterwards.

# COMMAND LINE on a terminal of its own, with the keys that come on stdin.
on_terminal() {
    command -v script > /dev/null || skip "no script(1)"
    timeout 15 script -qec "stty rows 33 cols 44; $1" /dev/null > "$T/out" 2> "$T/err"
    status=$?
    sed -i 's/\r*$//' "$T/out" # two, where the terminal is between its modes
}

case_it_is_a_terminal() {
    hvd --pty -np 2 sh -c '[ $RANK = 0 ] || exit 0; for i in 0 1 2; do [ -t $i ] && echo "$i is one"; done; : < /dev/tty && echo and controls; stty size'
    expect_status 0
    sed -i 's/\r*$//' "$T/out" # two, where the terminal is between its modes
    expect_sorted '0 is one' '1 is one' '2 is one' 'and controls' '24 80'
}

case_the_rank_of_stdin() {
    echo words > "$T/in"
    hvd --pty --stdin 1 --tag rank -np 2 sh -c 'if [ -t 0 ]; then read -r line; echo "$RANK read $line"; else echo none; fi'
    expect_status 0
    expect_out '^1 read words.$'
    expect_out '^\[0\]<stdout>:none$'
    bad_input '--pty is for one rank' --pty --stdin all true
    bad_input '--pty is for one rank' --pty --stdin none true
}

case_the_end_of_input() {
    printf 'one\ntwo' > "$T/in"
    hvd --pty -np 1 cat
    expect_status 0
    # Their echo, and what cat says.
    expect_same 4 "$(grep -oE 'one|two' "$T/out" | wc -l)" "the number of words"
    rm "$T/in"
    hvd --pty -np 1 sh -c 'cat; echo end'
    expect_out '^end'
}

case_all_that_was_written_comes() {
    hvd --pty -np 1 sh -c 'stty -opost; seq 100000; exit 3'
    expect_status 3
    [ "$(sha256sum < <(seq 100000))" = "$(grep -v '^hvdrun' "$T/out" | sha256sum)" ] || fail "not what was written: $(wc -c < "$T/out") bytes"
}

case_interrupt_is_a_key() {
    command -v script > /dev/null || skip "no script(1)"
    mkfifo "$T/keys"
    { until_true 8 grep -q ready "$T/out"; printf '\003'; until_true 4 grep -q caught "$T/out"; } > "$T/keys" &
    on_terminal "$HVDRUN --pty -np 1 sh -c 'trap \"echo caught; exit 5\" INT; echo ready; while :; do sleep 0.1; done'" < "$T/keys"
    expect_status 5
    expect_out 'caught'
}

case_the_window_and_the_mode() {
    on_terminal "ln -s \$(tty) $T/tty; $HVDRUN --pty -np 2 sh -c '[ \$RANK = 0 ] || { sleep 0.3; echo other; exit; }; stty size; sleep 0.5; stty -a < $T/tty | grep -o -e -icanon; sleep 1'; stty -a | grep -o -w icanon" < /dev/null
    expect_out '33 44$'
    expect_out '(^|[^a-z])-icanon$' # the echo of ^@ may be before it
    expect_out '^icanon$'  # and then
    expect_out 'other$'
}

case_a_new_size() {
    # Not bash: it loses a signal now and then, when it comes within $(...) or within the trap.
    on_terminal "ln -s \$(tty) $T/tty; $HVDRUN --pty -np 1 sh -c 'trap told=1 WINCH; stty rows 11 cols 22 < $T/tty; until [ \"\$told\" ] && [ \"\$(stty size)\" = \"11 22\" ]; do sleep 0.1; done; stty size; exit 4'" < /dev/null
    expect_status 4
    expect_out '11 22$' # the echo of ^@ may be before it
}

case_the_terminal_after_sigterm() {
    on_terminal "ln -s \$(tty) $T/tty; sh -c 'echo \$\$ > $T/pid; exec \"\$@\"' x $HVDRUN --pty -np 1 sh -c 'sleep 0.5; stty -a < $T/tty | grep -o -e -icanon; kill -TERM \$(cat $T/pid); sleep 9'; echo status \$?; stty -a | grep -o -w icanon" < /dev/null
    expect_out '(^|[^a-z])-icanon$' # the echo of ^@ may be before it
    expect_out '^status 143$'
    expect_out '^icanon$'
}
