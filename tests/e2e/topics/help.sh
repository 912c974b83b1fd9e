# hvdrun help: pages where there is a man(1), short texts where there is none; and the page of variables, beside a real worker's.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016

names() {
    "$HVDRUN" help | sed -nE 's/^  ([a-z-]+) .*/\1/p'
}

without_man() { # TOPIC...
    mkdir -p "$T/empty"
    PATH=$T/empty run "$HVDRUN" help "$@"
}

case_every_topic_has_a_short_text() {
    local topic
    expect_same 'agent config elastic environment exit-codes flags gpus horovod hostfile hvdctl hvdrun library mpi options rendezvous slurm ssh tensorflow torch' "$(names | sort | paste -sd' ')" topics
    for topic in $(names); do
        without_man "$topic"
        expect_status 0
        expect_no_err
        [ "$(wc -l < "$T/out")" -ge 3 ] || fail "help $topic says too little"
        [ "$topic" = environment ] || [ "$(wc -l < "$T/out")" -le 24 ] || fail "help $topic is longer than a screen"
        [ "$topic" = environment ] || ! grep -E '.{81}' "$T/out" || fail "help $topic is wider than 80"
    done
}

case_pages() {
    command -v man > /dev/null && man -w ls > /dev/null 2>&1 || skip 'no man(1) here'
    local topic page
    while read -r topic page; do
        run "$HVDRUN" help "$topic"
        expect_status 0
        expect_no "$T/err" 'break line' # a column that is too narrow for its words
        expect_out "^$page"
    done << 'END'
hvdrun HVDRUN\(1\)
environment HVD-ENVIRONMENT\(7\)
config HVDRUN.CONF\(5\)
rendezvous HVD-RENDEZVOUS\(7\)
flags HVDRUN-FLAGS\(7\)
agent HVDAGENT\(8\)
library HVD\(3\)
END
}

case_groups_of_options() {
    run "$HVDRUN" help options 'COLLECTIVES'
    expect_status 0
    expect_out '^  --autotune '
    expect_no "$T/out" '^  -np'
    expect_count 1 '^[A-Z].*:$' "$T/out"
}

case_unknown_topics() {
    run "$HVDRUN" help me
    expect_status 2
    expect_err "there is no topic 'me'"
    expect_err 'topics: hvdrun, options, environment, exit-codes, hostfile, config, rendezvous, torch, horovod, tensorflow, mpi, slurm, ssh, elastic, flags, gpus, agent, hvdctl, library$'
    run "$HVDRUN" help options zebra
    expect_status 2
    run "$HVDRUN" help hostfile me
    expect_status 2
    expect_err "help hostfile: 'me' is too much"
}

case_a_command_of_that_name() {
    mkdir "$T/bin"
    printf '#!/bin/sh\necho "rank $RANK helps"\n' > "$T/bin/help"
    chmod +x "$T/bin/help"
    PATH=$T/bin:$PATH hvd -np 1 help
    expect_sorted 'rank 0 helps'
    PATH=$T/bin:$PATH run "$HVDRUN" -- help
    expect_sorted 'rank 0 helps'
}

page_variables() { # of the workers: the names in the page, once each
    sed -n '/^\.Sh VARIABLES OF WORKERS/,/^\.Sh EXAMPLES/p' "$top/man/hvd-environment.7" |
        sed -nE 's/^\.(It )?Ev //p' | tr ' ' '\n' | grep -oE '^[A-Za-z_0-9]{3,}' | grep -E '_|RANK|WORLD|PYTHON' | sort -u
}

# Each variable that workers get is in the page, and each in the page can be got: on this machine, but for those of GPUs and those
# of a PMIx server that is there before the workers.
case_variables_of_workers() {
    env -i PATH="$PATH" "$HVDRUN" -np 2 --network-interfaces lo --rendezvous auto,tf,paddle --preload "$top/README.md" env > "$T/env" 2> "$T/err" || fail "$(cat "$T/err")"
    env -i PATH="$PATH" "$HVDRUN" -np 1 --min-np 1 env >> "$T/env" 2> "$T/err" || fail "$(cat "$T/err")"
    sed -nE 's/^([A-Za-z_0-9]+)=.*/\1/p' "$T/env" | sort -u | grep -vxE 'PATH|PWD|SHLVL|_' > "$T/got"
    page_variables > "$T/page"
    [ "$(wc -l < "$T/got")" -gt 50 ] || fail "only $(wc -l < "$T/got") variables"
    expect_same '' "$(comm -23 "$T/got" "$T/page" | paste -sd' ')" 'variables of a worker that are not in the page'
    expect_same '' "$(comm -13 "$T/got" "$T/page" | grep -vxE 'CUDA_.*|HVD_NEWCOMER|JAX_LOCAL_DEVICE_IDS|FLAGS_selected_gpus|PMIX_(VERSION|DSTORE.*)|OMPI_MCA_mpi_oversubscribe|MPIR_CVAR_CH4_.*' | paste -sd' ')" \
        'variables of the page that no worker has'
}

# What the agents and hvdrun read themselves.
case_variables_that_are_read() {
    local name
    for name in $(cd "$top" && grep -rhoE 'getenv\("[A-Z_]+"\)' agent launcher common | cut -d'"' -f2 | sort -u); do
        [ "$name" != HOME ] || continue
        grep -qE "^\.(It )?Ev (.* )?$name( |\$)" "$top/man/hvd-environment.7" || fail "$name is read and is not in the page"
    done
}
