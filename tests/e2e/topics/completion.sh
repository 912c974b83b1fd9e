# shellcheck shell=bash disable=SC2034,SC2154
# What bash offers after a line: the script is hvdrun's own, its function is called as bash calls it.

offers() { # WORD... : the words of the line as bash cuts them, the cursor at the end of the last
    bash --norc -c '
        compopt() { :; } # only bash itself may call it, while it completes
        eval "$("$0" --bash-completion)" || exit 9
        [ "$(complete -p hvdrun)" = "complete -F _hvdrun hvdrun" ] || exit 8
        COMP_WORDS=(hvdrun "$@") COMP_CWORD=$#
        _hvdrun
        printf "%s\n" "${COMPREPLY[@]}"' "$HVDRUN" "$@" > "$T/out" 2> "$T/err" || fail "the script fails: $?"
    [ ! -s "$T/err" ] || fail "the script complains"
    LC_ALL=C sort "$T/out" | tr '\n' ' '
}

case_options_and_their_values() {
    cd "$T" || fail "no directory"
    mkdir 'some dir' && touch 'some file' sole
    printf '# hosts\nalpha slots=2\nalbert:4\n\nbravo # spare\n' > hosts
    expect_same '--config-file ' "$(offers --config)" 'after --config'
    expect_same 'rank ' "$(offers -np 2 --tag ra)" 'after --tag ra'
    expect_same 'rank ' "$(offers --tag = ra)" 'after --tag=ra'
    expect_same 'host none rank ' "$(offers --tag =)" 'after --tag='
    expect_same 'some dir some file ' "$(offers --hostfile some)" 'after --hostfile some'
    expect_same 'some dir ' "$(offers --wdir so)" 'after --wdir so'
    expect_same 'albert alpha ' "$(offers --hostfile hosts -H al)" 'hosts of --hostfile'
    expect_same '2,bravo ' "$(offers -hostfile = hosts -H alpha : 2,b)" 'hosts behind a comma'
    expect_same 'albert alpha bravo ' "$(HVDRUN_HOSTFILE=hosts offers -H '')" 'hosts of the variable'
    expect_same ' ' "$(offers -np '')" 'a number'
    expect_same 'sole ' "$(offers -np 2 sol)" 'the command'
    expect_same ' ' "$(offers -np 2 ./train --ta)" 'options behind the command'
}

case_every_option_is_offered() {
    local flag all
    all=" $(offers -)"
    for flag in $("$HVDRUN" --help | grep -oE '^  -[^ ]+(, -[^ ]+)*' | tr -d ','); do
        [[ $all == *" ${flag%%[*} "* ]] || fail "$flag is not offered: $all"
    done
}
