# shellcheck shell=bash
# The progress of a build and of a run of the tests (tests/build.sh, tests/run.sh). On a terminal that is one line that
# changes, below those that stay; elsewhere, in a log, a plain line every ten seconds.

live='' columns=80 live_is_shown='' plain_at=$SECONDS
if [ -t 1 ]; then
    live=1
    columns=$(stty size <&1 2> /dev/null | cut -d' ' -f2)
    [ "${columns:-0}" -gt 20 ] || columns=80
fi

say() { # LINE: it stays
    [ -z "${VERBOSE:-}" ] || return
    hide_progress
    printf '%s\n' "$1"
}

hide_progress() {
    [ -z "$live_is_shown" ] || printf '\r\033[K'
    live_is_shown=
}

show_progress() { # TEXT
    [ -z "${VERBOSE:-}" ] || return
    if [ -n "$live" ]; then
        [ "$live_is_shown" = "$1" ] || printf '\r\033[K%s' "${1:0:columns - 1}"
        live_is_shown=$1
    elif [ $((SECONDS - plain_at)) -ge 10 ]; then
        plain_at=$SECONDS
        printf '%s\n' "$1"
    fi
}

as_time() { # SECONDS
    if [ "$1" -lt 60 ]; then echo "$1 s"; else printf '%d:%02d min\n' $(($1 / 60)) $(($1 % 60)); fi
}

# ---- the results of tests -----------------------------------------------------------------------------------------------------
# A line of a lane is a result (`ok - NAME`, `not ok - NAME`, `ok - NAME # SKIP why`), a mark, or for the reader; what follows a
# failure belongs to it, and so does what is indented before it. The marks: `== SUITE`, `# SUITE: N s` at its end, and `# begin STEP`, `# end STEP`. A step is a unit test
# program, an end-to-end case, or all of another suite.
passed=0 failed=0 skipped=0
steps=0 steps_done=0 # how many there are, and how many are over
past=()              # when each step was over in the last run, in ms; at last the whole run
step_times=()
declare -A skips=() skip_names=() running=() after_failure=() notes=() suite_counts=()
failures=()
run_began=${EPOCHREALTIME/./}

run_ms() {
    echo $(((${EPOCHREALTIME/./} - run_began) / 1000))
}

step_is_over() {
    steps_done=$((steps_done + 1))
    step_times+=("$(run_ms)")
}

# By the last run, as fast or slow as this one has been so far. Nothing without a last run.
time_left() {
    local last=$((${#past[@]} - 1)) now total then=0 left
    [ $last -gt 0 ] || return
    now=$(run_ms)
    total=${past[last]}
    [ "$steps_done" = 0 ] || then=${past[$(((steps_done * last + steps - 1) / steps - 1))]:-$total}
    left=$((total - then))
    if [ "$then" -gt 5000 ]; then
        left=$((left * step_times[steps_done - 1] / then))
        left=$((left - now + step_times[steps_done - 1]))
    else
        left=$((left - now + then))
    fi
    if [ $left -gt 1000 ]; then echo ", about $(as_time $((left / 1000))) left"; else echo ', nearly over'; fi
}

show_tests() {
    local names='' name
    for name in "${running[@]}"; do names+=${names:+; }$name; done
    [ "$failed" = 0 ] || names="$failed failed${names:+; $names}"
    show_progress "[$steps_done/$steps] $(as_time $((($(run_ms) + 500) / 1000)))$(time_left): $names"
}

take_skip() { # NAME WHY
    skipped=$((skipped + 1))
    skips[$2]=$((${skips[$2]:-0} + 1))
    skip_names[$2]=${skip_names[$2]:-$1}
}

suite_is_over() { # LANE SUITE SECONDS
    local before
    read -ra before <<< "${suite_counts[$1]:-0 0 0}"
    say "$2: $((${suite_counts[$1.passed]:-0} - before[0])) passed, $((${suite_counts[$1.failed]:-0} - before[1])) failed, $((${suite_counts[$1.skipped]:-0} - before[2])) skipped, $3 s"
}

count_result() { # LANE passed|failed|skipped
    suite_counts[$1.$2]=$((${suite_counts[$1.$2]:-0} + 1))
}

# VERBOSE=1: what a lane says is held back while one before it runs.
first_lane=0 held=()
new_lanes() {
    first_lane=0 held=()
    after_failure=() notes=() running=() suite_counts=()
}

# The sum shows the first lines that stand below a failure too.
add_reason() { # LANE LINE
    local -n reasons=failures["${after_failure[$1]}"]
    [ "$(grep -c '' <<< "$reasons")" -gt 4 ] || reasons+=$'\n'${2:0:200}
}

list_line() { # LANE LINE
    case $2 in '# begin '* | '# end '*) return ;; esac
    if [ "$1" != $first_lane ]; then
        held[$1]+=$2$'\n'
    elif [ "$2" != '# over' ]; then
        printf '%s\n' "$2"
    else
        while
            first_lane=$((first_lane + 1))
            printf '%s' "${held[first_lane]:-}" | grep -v '^# over$'
            [[ ${held[first_lane]:-} == *$'# over\n' ]]
        do :; done
    fi
}

take_line() { # LANE LINE
    local lane=$1 line=$2
    [ -z "${VERBOSE:-}" ] || list_line "$lane" "$line"
    case $line in
    'ok - '*' # SKIP '*)
        after_failure[$lane]=
        line=${line#ok - }
        take_skip "${line%% # SKIP *}" "${line#* # SKIP }"
        count_result "$lane" skipped
        ;;
    'ok - '*)
        after_failure[$lane]=''
        notes[$lane]=''
        passed=$((passed + 1))
        count_result "$lane" passed
        ;;
    'not ok - '*)
        failed=$((failed + 1))
        after_failure[$lane]=$failed
        failures[failed]=$line
        count_result "$lane" failed
        say "$line"
        if [ -n "${notes[$lane]:-}" ]; then
            say "${notes[$lane]%$'\n'}"
            add_reason "$lane" "$(head -n 4 <<< "${notes[$lane]}")"
        fi
        notes[$lane]=
        ;;
    '# begin '*)
        running[$lane]=${line#\# begin }
        notes[$lane]=
        ;;
    '# end '*)
        after_failure[$lane]=
        unset "running[$lane]"
        step_is_over
        ;;
    '== '*)
        after_failure[$lane]=
        running[$lane]=${line#== }
        suite_counts[$lane]="${suite_counts[$lane.passed]:-0} ${suite_counts[$lane.failed]:-0} ${suite_counts[$lane.skipped]:-0}"
        ;;
    *)
        if [[ $line =~ ^'# '([^ ]+)': '([0-9]+)' s'$ ]]; then
            unset "running[$lane]"
            after_failure[$lane]=
            suite_is_over "$lane" "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"
        elif [ -n "${after_failure[$lane]:-}" ]; then
            say "$line"
            add_reason "$lane" "$line"
        elif [[ $line == '    # '* && $(wc -c <<< "${notes[$lane]:-}") -lt 8000 ]]; then
            notes[$lane]+=$line$'\n'
        fi
        ;;
    esac
}

say_the_sum() { # TIMES LOG
    local why
    hide_progress
    if [ ${#skips[@]} != 0 ]; then
        echo '== skipped'
        for why in "${!skips[@]}"; do
            printf '%4d  %s (%s%s)\n' "${skips[$why]}" "$why" "${skip_names[$why]}" "$([ "${skips[$why]}" = 1 ] || echo ', ...')"
        done | sort -rn
    fi
    echo '== the slowest, in ms'
    sort -rn "$1" | head -n 10
    if [ "$failed" != 0 ]; then
        echo '== failed'
        printf '%s\n' "${failures[@]}"
    fi
    echo "== $(as_time $(($(run_ms) / 1000))); every line is in $2"
    echo "$passed passed, $failed failed, $skipped skipped"
}
