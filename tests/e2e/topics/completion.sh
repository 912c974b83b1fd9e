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

case_commands_of_hvdctl() {
    ctl_offers() {
        bash --norc -c '
            compopt() { :; }
            eval "$("$0" --bash-completion)" || exit 9
            COMP_WORDS=(hvdctl "$@") COMP_CWORD=$#
            _hvdctl
            printf "%s\n" "${COMPREPLY[@]}"' "$BUILD/hvdctl" "$@" 2> "$T/err" | LC_ALL=C sort | tr '\n' ' '
    }
    expect_same 'resize ' "$(ctl_offers re)" 'after re'
    expect_same 'drain ' "$(ctl_offers dr)" 'after dr'
    expect_same '--follow ' "$(ctl_offers logs --fo)" 'after logs --fo'
    for word in $(sed -n 's/^\.It Cm \([a-z]*\).*/\1/p' "$top/man/hvdctl.1" | sort -u); do
        [[ " $(ctl_offers '') " == *" $word "* ]] || fail "$word is not offered"
    done
}

case_fish() {
    command -v fish > /dev/null || skip 'no fish here'
    fish_offers() { # PROGRAM LINE
        HOME=$T XDG_CONFIG_HOME=$T XDG_DATA_HOME=$T fish -c '$argv[1] --fish-completion | source; complete -C $argv[2]' "$1" "$2" 2> "$T/err" | cut -f1 | tr '\n' ' '
        [ ! -s "$T/err" ] || fail 'the script complains'
    }
    expect_same '--verbose ' "$(fish_offers "$HVDRUN" 'hvdrun --verb')" 'after --verb'
    expect_same 'host none rank ' "$(fish_offers "$HVDRUN" 'hvdrun --tag ')" 'after --tag'
    expect_same 'resize ' "$(fish_offers "$BUILD/hvdctl" 'hvdctl re')" 'after re'
}

# zsh completes at a terminal only.
case_zsh() {
    command -v zsh > /dev/null && command -v python3 > /dev/null || skip 'no zsh here, or no python3'
    mkdir "$T/functions"
    "$HVDRUN" --zsh-completion > "$T/functions/_hvdrun"
    "$BUILD/hvdctl" --zsh-completion > "$T/functions/_hvdctl"
    cat > "$T/terminal.py" <<-'END'
	import os, pty, select, sys, time
	pid, fd = pty.fork()
	if pid == 0:
	    os.environ.update(HOME=sys.argv[1], ZDOTDIR=sys.argv[1], TERM="dumb", PS1="> ")
	    os.execvp("zsh", ["zsh", "-f", "-i"])
	def until(text, seconds=10):
	    got, end = "", time.time() + seconds
	    while text not in got and time.time() < end:
	        if select.select([fd], [], [], 0.1)[0]:
	            got += os.read(fd, 65536).decode(errors="replace")
	    return got
	def say(text):
	    os.write(fd, text.encode())
	say("fpath=(%s/functions $fpath); autoload -U compinit; compinit -u -D; echo rea''dy\n" % sys.argv[1])
	until("\nready")
	for line, wanted in (("hvdrun --verb\t", "--verbose"), ("hvdrun --tag ra\t", "--tag rank"), ("hvdctl resi\t", "hvdctl resize")):
	    say(line)
	    got = until(wanted)
	    assert wanted in got, (line, got)
	    say("\x15")
	say("exit\n")
	END
    timeout 60 python3 "$T/terminal.py" "$T" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
}
