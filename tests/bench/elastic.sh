# shellcheck shell=bash disable=SC2154
# The part of run.sh about elastic jobs on 2 hosts x 2 ranks (namespaces; root): elastic.

# Of the lines of elastic_step: the time from each death, and from the step before each arrival, until the end of the first step after
# it, less a step. In ms.
stood_still() { # FILE dies|comes
    awk -v what="$2" '
        $1 == "dies" { dies = $2 }
        $1 == "first" && dies && $2 < 4 { if (what == "dies") printf "%.1f\n", ($3 - dies - $5) / 1e6; dies = 0; next }
        $1 == "first" && what == "comes" && $2 == 4 { printf "%.1f\n", ($3 - $4 - $5) / 1e6 }' "$1" | sort -n
}

still_goals() { # WHAT FILE dies|comes MEDIAN_LIMIT WORST_LIMIT
    local -a ms
    mapfile -t ms < <(stood_still "$2" "$3")
    [ ${#ms[@]} -ge "$rounds" ] || { trouble "$1: ${#ms[@]} of $rounds changes were seen"; return 0; }
    printf '  %-34s %d times: median %s, least %s, worst %s ms\n' "$1" "${#ms[@]}" "${ms[$((${#ms[@]} / 2))]}" "${ms[0]}" "${ms[-1]}"
    goal "$1, median" "${ms[$((${#ms[@]} / 2))]}" "$4" ' ms'
    [ -z "$5" ] || goal "$1, worst" "${ms[-1]}" "$5" ' ms'
}

elastic_job() { # FILE COMMAND...: all deaths in one job; after each a second of cool-down, in which nothing is measured
    local file=$1
    shift
    timeout 600 "$here/../hosts/hosts.sh" exec head "$build/hvdrun" -np 4 --min-np 2 -H "$(host_list 2 2)" --blacklist-cooldown-range 1 1 "$@" \
        > "$file" 2> "$scratch/err" < /dev/null || trouble "${*: -3:1}: $(tail -n 1 "$scratch/err")"
}

# The clock of /proc/uptime is that of the ranks, to 10 ms.
lost_host() { # adds the time from the cut until the end of the first step after it to ms=()
    local job out=$scratch/lost cut
    "$here/../hosts/hosts.sh" exec head timeout 60 "$build/hvdrun" --heartbeat-timeout 1 -np 4 --min-np 2 -H "$(host_list 2 2)" \
        "$build/bench/elastic_step" 0 65536 > "$out" 2> "$scratch/err" < /dev/null &
    job=$!
    sleep 1.5
    cut=$(awk '{ printf "%.0f", $1 * 1e9 }' /proc/uptime)
    "$here/../hosts/hosts.sh" cut node2
    wait "$job" || trouble "a lost host: $(tail -n 1 "$scratch/err")"
    "$here/../hosts/hosts.sh" heal node2
    ms+=("$(awk -v cut="$cut" '$1 == "first" { printf "%.0f", ($3 - cut - $5) / 1e6; exit }' "$out")")
}

# Instructions of a step: those of 400 steps less those of 100, on the rank that had the fewest. Ranks that wait for one another count
# more of them.
step_instructions() { # RANKS PROGRAM_OPTION OPTION... of hvdrun
    local steps count=()
    for steps in 100 400; do
        # shellcheck disable=SC2086 # none, or one
        count+=("$("$build/hvdrun" -np "$1" "${@:3}" valgrind --tool=callgrind --callgrind-out-file=/dev/null \
            "$build/examples/train" --steps "$steps" --hidden 16 --global-batch 32 $2 2>&1 < /dev/null |
            awk '/Collected :/ { if (!n || $NF < n) n = $NF } END { print n + 0 }')")
    done
    echo $(((count[1] - count[0]) / 300))
}

instruction_goals() {
    local ranks run least fixed elastic commits one
    have valgrind || { echo '  instructions of a step: there is no valgrind'; return 0; }
    for ranks in 1 2; do
        fixed='' elastic='' commits=''
        for run in 1 2 3; do
            one=$(step_instructions "$ranks" '') && [ "${fixed:-$one}" -lt "$one" ] || fixed=$one
            one=$(step_instructions "$ranks" '' --min-np 1) && [ "${elastic:-$one}" -lt "$one" ] || elastic=$one
            one=$(step_instructions "$ranks" --elastic --min-np 1) && [ "${commits:-$one}" -lt "$one" ] || commits=$one
        done
        printf '  instructions of a step of train, %d rank(s): %d, in an elastic job %d, with a commit in each step %d\n' "$ranks" "$fixed" "$elastic" "$commits"
        least=$(awk -v a="$elastic" -v b="$fixed" 'BEGIN { printf "%.2f", (a > b ? a - b : b - a) / b * 100 }')
        goal "instructions of a step, elastic against fixed, $ranks rank(s)" "$least" 1 ' %'
    done
}

part_elastic() {
    local bytes=10000000 run
    local -a ms
    title "elastic jobs, 2x2 hosts x ranks: from the event to the end of the first step after it, less a step"
    instruction_goals
    hosts_up 2 || return 0
    elastic_job "$scratch/elastic" "$build/bench/elastic_step" "$rounds" 65536
    still_goals 'a rank is killed, C' "$scratch/elastic" dies 100 300
    still_goals 'a rank comes: pause of the others, C' "$scratch/elastic" comes 100 ''
    if python_is_ready; then
        elastic_job "$scratch/elastic" env "PYTHONPATH=$build/python" "$python" "$build/bench/elastic_step.py" "$rounds" "$bytes"
        still_goals 'a rank is killed, torch, 10 MB' "$scratch/elastic" dies 300 500
        still_goals 'a rank comes, torch, 10 MB' "$scratch/elastic" comes 300 ''
    fi
    for run in 1 2 3 4 5; do
        sleep "$((run > 1 ? 2 : 0))" # the host's agents of the run before end by themselves
        lost_host
    done
    mapfile -t ms < <(printf '%s\n' "${ms[@]}" | sort -n)
    printf '  a host is lost, 5 times: %s ms\n' "${ms[*]}"
    goal 'a host is lost, --heartbeat-timeout 1' "${ms[2]:-}" 1500 ' ms'
    "$here/../hosts/hosts.sh" down
}
