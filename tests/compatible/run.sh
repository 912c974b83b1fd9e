#!/bin/bash
# Compares what users can see of the present build with that of an older commit: nothing may differ but what is intended.
#
#   BUILD=build tests/compatible/run.sh        (make check-compatible)      prints TAP, a line a part, and the differences
#   BASE=COMMIT           the older commit or tag
#   COMPARE="abi env"     these parts only
#   COMPATIBLE_KEEP=1     leaves the older build and the lists in $BUILD/compatible, and the next run takes that build
#
# The parts:
#   options   the rows of the option tables of hvdrun, hvdagent daemon and hvdctl, without their help; topics; syntax
#   exits     the exit status of each line of commands.txt
#   reports   the paths of keys and the types of values in each JSON of json.txt
#   abi       symbols of libhvd.so, its names, types, numbers and prototypes in hvd.h, and jobs with the libraries exchanged
#   env       the variables of ranks
#
# A part is a list of lines for each of the builds. Lines that only one of them has are differences: `-` the older commit's, `+` ours.
# Those of `intended` are allowed. The test fails on any other, and on a line of `intended` that stands for no difference.
set -u -o pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
export LC_ALL=C # of sort, comm and what tools say
here=tests/compatible
build=$(realpath -m "${BUILD:-build}")
base=${BASE:-10603f4} # the last commit before the folders of the tree were rebuilt
state=$build/compatible
limit=120 # seconds for a command
all_parts='options exits reports abi env'
failed=0

# COMMIT | PART SIGN the beginning of a line | why. `job *, rank *:` stands for all ranks of env.txt, `report:` for all lines of json.txt with --report. It counts when the older commit does not contain COMMIT, which made the difference.
intended() {
    cat << 'END'
e941f80 | options + hvdrun --gpu-connect-timeout: | a limit for NCCL that connects ranks
e941f80 | options + hvdrun --gpu-require-nccl: | users may want no job rather than one through host memory
e941f80 | abi + #define HVD_DEFAULT_STREAM  | a name for the stream that 0 means, in hvd(3); nothing older changed
179fdb7f | abi + hvdrun of base, libhvd of present: the control region has layout 16, this libhvd speaks 24 | SHM_VERSION 24: from rank to rank
179fdb7f | abi + hvdrun of present, libhvd of base: the control region has layout 24, this libhvd speaks 16 | SHM_VERSION 24: from rank to rank
bffb696b | abi - #define HVD_VERSION_MINOR 1 | 0.2.0
bffb696b | abi + #define HVD_VERSION_MINOR 2 | 0.2.0
1a1d83f2 | options + hvdagent reach [--key-file | hosts without sshd
1a1d83f2 | options + hvdagent wait [--key-file | hosts without sshd
1a1d83f2 | options + [--limit SECONDS] [--linger | hosts without sshd
0750c54a | reports + hvdrun -np 2 -x XDG_RUNTIME_DIR sh -c './meet; [ $HVD_RANK = 0 ] || exec sleep 60; hvdctl status $HVD_JOB --json; exit 1': .heat | processors that slow down because of heat
147771d7 | abi + T hvd_wait_for@@HVD_0 | a wait with a time limit
147771d7 | abi + extern int hvd_wait_for  | a wait with a time limit
147771d7 | abi - hvd_status: type = enum hvd_status  | HVD_ERR_TIMEOUT is new
147771d7 | abi + hvd_status: type = enum hvd_status  | HVD_ERR_TIMEOUT is new
02b5696f | abi + T hvd_abort@@HVD_0 | a rank gives up and says why
02b5696f | abi + extern int hvd_abort  | a rank gives up and says why
02b5696f | abi + T hvd_alloc_lasting@@HVD_0 | memory that outlives the job
02b5696f | abi + extern void *hvd_alloc_lasting  | memory that outlives the job
02b5696f | abi + T hvd_allgather_alloc | a result whose size the caller learns first
02b5696f | abi + extern int hvd_allgather_alloc | a result whose size the caller learns first
02b5696f | abi + T hvd_alltoall_alloc | a result whose size the caller learns first
02b5696f | abi + extern int hvd_alltoall_alloc | a result whose size the caller learns first
e277fec | abi - hvd_options: /*     40 | hvd_options.shape takes the place of one
e277fec | abi + hvd_options: /*     40 | the dimensions must be the same on all ranks
e277fec | abi + hvd_options: /*     44 | hvd_options.shape takes the place of one
e277fec | abi - hvd_options: /*     28 | hvd_options.will_wait takes its place
e277fec | abi + hvd_options: /*     28 | an _async call as fast as a blocking one
57d713a5 | options + hvdrun --blacklist-cooldown-range: | elastic jobs
57d713a5 | options - hvdrun refuses --blacklist-cooldown-range | elastic jobs
57d713a5 | options + hvdrun --elastic-timeout: | elastic jobs
57d713a5 | options - hvdrun refuses --elastic-timeout | elastic jobs
57d713a5 | options + hvdrun --host-discovery-script: | elastic jobs
57d713a5 | options - hvdrun refuses --host-discovery-script | elastic jobs
57d713a5 | options + hvdrun --max-num-proc: | elastic jobs
57d713a5 | options - hvdrun refuses --max-np, --max-num-proc | elastic jobs
57d713a5 | options + hvdrun --min-num-proc: | elastic jobs
57d713a5 | options - hvdrun refuses --min-np, --min-num-proc | elastic jobs
57d713a5 | options + hvdrun --max-restarts: | --reset-limit has a meaning of its own in elastic jobs
57d713a5 | options + hvdrun --reset-limit: | --reset-limit has a meaning of its own in elastic jobs
57d713a5 | options - hvdrun --reset-limit: | --reset-limit has a meaning of its own in elastic jobs
57d713a5 | options + hvdrun --slots-per-host: | horovodrun's name --slots
57d713a5 | options - hvdrun --slots-per-host: | horovodrun's name --slots
57d713a5 | options + hvdrun help torch | the topic of torch.distributed
57d713a5 | options + hvdrun refuses --nnodes, | torchrun's options are answered
57d713a5 | options + hvdrun refuses --nproc-per-node, | torchrun's options are answered
57d713a5 | options + hvdrun refuses --rdzv-backend, | torchrun's options are answered
57d713a5 | options + hvdrun refuses --standalone | torchrun's options are answered
57d713a5 | abi + T hvd_reset@@HVD_0 | elastic jobs
32634de7 | abi + T hvd_stage@@HVD_0 | the parts of a change
32634de7 | abi + extern int hvd_stage ( | the parts of a change
32634de7 | abi + #define HVD_STAGE_ | the parts of a change
57d713a5 | abi + extern int hvd_reset ( | elastic jobs
57d713a5 | abi + T hvd_membership@@HVD_0 | elastic jobs
57d713a5 | abi + extern int hvd_membership ( | elastic jobs
57d713a5 | abi + T hvd_membership_changed@@HVD_0 | elastic jobs
57d713a5 | abi + extern int hvd_membership_changed ( | elastic jobs
57d713a5 | abi + T hvd_set_open@@HVD_0 | process sets that a few ranks open
57d713a5 | abi + extern int hvd_set_open ( | process sets that a few ranks open
57d713a5 | abi + T hvd_set_close@@HVD_0 | process sets that a few ranks open
57d713a5 | abi + extern int hvd_set_close ( | process sets that a few ranks open
57d713a5 | env + job *, rank *: HVD_WORKER= | a worker of an elastic job keeps its number when its rank changes
57d713a5 | env + job *, rank *: GROUP_WORLD_SIZE | torchrun sets it
57d713a5 | env + job *, rank *: ROLE_NAME | torchrun sets it
57d713a5 | env + job *, rank *: ROLE_RANK | torchrun sets it
57d713a5 | env + job *, rank *: ROLE_WORLD_SIZE | torchrun sets it
57d713a5 | env + job *, rank *: TORCHELASTIC_ERROR_FILE | torchrun sets it
57d713a5 | env + job *, rank *: TORCHELASTIC_RUN_ID | torchrun sets it
57d713a5 | env + job *, rank *: TORCHELASTIC_USE_AGENT_STORE | torchrun sets it
57d713a5 | env + job *, rank *: TORCH_NCCL_ASYNC_ERROR_HANDLING | torchrun sets it
aa47744f | options + hvdctl --bash-completion: | completion of hvdctl
aa47744f | options + hvdctl --fish-completion: | completion for fish
aa47744f | options + hvdctl --zsh-completion: | completion for zsh
aa47744f | options + hvdrun --fish-completion: | completion for fish
aa47744f | options + hvdrun --zsh-completion: | completion for zsh
aa47744f | options + hvdrun help elastic | help for those who come from there
aa47744f | options + hvdrun help horovod | help for those who come from there
aa47744f | options + hvdrun help mpi | help for those who come from there
aa47744f | options + hvdrun help slurm | help for those who come from there
aa47744f | options + hvdrun help ssh | help for those who come from there
aa47744f | options + hvdrun help tensorflow | help for those who come from there
2f7bff17 | options + hvdrun --job-name: | names that people give
2f7bff17 | exits - hvdctl ps more: 2 | hvdctl ps HOST
2f7bff17 | exits + hvdctl ps more: 255 | hvdctl ps HOST: the status of ssh
03907768 | options + hvdrun --no-log-hide-timestamp: | horovodrun's name
03907768 | options - hvdrun --log-with-timestamp: | horovodrun's name --no-log-hide-timestamp
03907768 | options + hvdrun --start-timeout: | horovodrun's variable
03907768 | options - hvdrun --start-timeout: | horovodrun's variable
03907768 | options + hvdrun takes key gloo|mpi | horovodrun's key
03907768 | options + hvdrun takes key logging.hide_timestamp | horovodrun's key
03907768 | exits - echo 'no_such_key: 2' > c.yaml; hvdrun --config-file c.yaml true: 2 | as horovodrun, with a warning
03907768 | exits + echo 'no_such_key: 2' > c.yaml; hvdrun --config-file c.yaml true: 0 | as horovodrun, with a warning
f4f798d5 | options + hvdrun --resolve-timeout: | a mistyped host fails soon
f4f798d5 | options + hvdrun refuses --allow-run-as-root, | options of others are answered
f4f798d5 | options + hvdrun refuses -f | options of others are answered
f4f798d5 | options + hvdrun refuses -genv, | options of others are answered
f4f798d5 | options + hvdrun refuses -genvall, | options of others are answered
f4f798d5 | options + hvdrun refuses -m, | options of others are answered
f4f798d5 | options + hvdrun refuses -machinefile, | options of others are answered
68f86551 | options + hvdctl --file: | the file of hvdctl trace
68f86551 | options + hvdctl --seconds: | hvdctl trace
c698d35d | reports + report: .lateness | late ranks
c698d35d | reports + report: .ranks[].lateness | late ranks
1c305471 | reports + report: .environment | the page of a job
1c305471 | reports + report: .ranks[].history | the page of a job
1c305471 | reports + report: .history | the page of a job
1c305471 | reports + report: .hvdrun_command | the page of a job
1c305471 | reports + report: .started | the page of a job
6c72fb4d | options + hvdrun --flight-record: | the last operations of each rank
f4f798d5 | options + hvdrun refuses -mca, | options of others are answered
f4f798d5 | options + hvdrun refuses -npernode, | options of others are answered
f4f798d5 | options + hvdrun refuses -ppn, | options of others are answered
f4f798d5 | exits - hvdrun -np 2 --report /no/such/directory/r.json true: 0 | a report that cannot be written is refused before the start
f4f798d5 | exits + hvdrun -np 2 --report /no/such/directory/r.json true: 2 | a report that cannot be written is refused before the start
4be24e39 | env + job *, rank *: OMPI_MCA_initial_wdir= | Open MPI's launcher sets it
END
}

# shellcheck disable=SC2317,SC2329 # called by the trap
clean_up() {
    trap '' INT TERM HUP
    if [ -n "${COMPATIBLE_KEEP:-}" ]; then
        mkdir -p "$state/lists" && mv "$work"/*.base "$work"/*.present "$state/lists"
    else
        rm -rf "$state"
    fi
    rm -rf "$work"
}

not_ok() { # PART TEXT
    failed=1
    echo "not ok - compatible: $1${2:+: $2}"
}

# ---- the builds -------------------------------------------------------------------------------------------------------
# Sets tree and programs, the folders of sources and of built files, for base or present.
take_side() {
    case $1 in
    base) tree=$state/tree programs=$state/tree/build ;;
    present) tree=$PWD programs=$build ;;
    esac
}

build_base() { # COMMIT
    if [ "$(cat "$state/commit" 2> /dev/null)" != "$1" ]; then
        rm -rf "$state"
        mkdir -p "$state/tree" && git archive "$1" | tar -x -C "$state/tree" && echo "$1" > "$state/commit" || return
    fi
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -C "$state/tree" -j"$(nproc)" BUILD=build all > "$state/log" 2>&1
}

# Runs a program below a time limit, with an environment that does not depend on the caller's, and without the host's managed agent.
plainly() { # NAME=VALUE... COMMAND...
    env -i HOME="$work" USER=somebody LANG=C.UTF-8 TERM=dumb MANPAGER=cat TMPDIR="$work/t" XDG_RUNTIME_DIR="$work/run" HVDRUN_AGENT=job \
        PATH="$programs:$programs/bench:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" timeout -s KILL $limit env "$@" < /dev/null
}

# Becomes the working directory, and gets what commands use there: `rsh`, for --rsh on this host; `show-env`, which prints a rank's
# variables, a line each; `meet`, which waits until ranks 0 and 1 run and hvdrun knows so.
fresh_directory() {
    rm -rf "$work/here" && mkdir "$work/here" && cd "$work/here" || return
    printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' > rsh
    printf '#!/bin/sh\nenv -0 | tr "\\n\\0" " \\n" | sed "s/^/rank $HVD_RANK: /"\n' > show-env
    printf '#!/bin/sh\n: > up$HVD_RANK\nuntil [ -e up0 ] && [ -e up1 ]; do sleep 0.05; done\nsleep 0.3\n' > meet
    chmod 755 rsh show-env meet
}

commands() { # FILE: its lines without comments
    sed -e '/^#/d' -e '/^ *$/d' "$top/$here/$1"
}

# ---- the parts: each prints the lines of a side ------------------------------------------------------------------------
part_options() {
    local objects header program=$work/options
    header=$(find "$tree/common" -name options.h) || return
    # Those of today's sources: the build may have objects of sources that are gone.
    mapfile -t objects < <(cd "$tree" && find launcher agent -name '*.c' ! -name main.c |
        sed "s|^|$programs/obj/|; s|c\$|o|" | xargs -r ls 2> /dev/null)
    rm -f "$program.a"
    # The linker takes from the archive what the tables need.
    # shellcheck disable=SC2046 # words
    ar qcs "$program.a" "${objects[@]}" &&
        gcc -std=gnu17 -I"$tree" -include "$header" -o "$program" "$here/options.c" -Wl,--start-group "$program.a" \
            "$programs/libcommon.a" -Wl,--end-group $(pkg-config --libs libuv libprotobuf-c) -lm -lpthread -ldl || return
    "$program" || return
    plainly hvdrun help | sed -nE 's/^  ([a-z-]+) .*/hvdrun help \1/p' || return
    plainly hvdagent --help | sed -E '/^$/,$d; s/^ +//' || return
    plainly hvdctl --help | sed -n '/^usage/p'
}

part_exits() {
    local line
    while IFS= read -r line; do
        (fresh_directory && plainly bash -c "$line" > /dev/null 2>&1)
        echo "$line: $?"
    done < <(commands commands.txt)
}

part_reports() {
    local line
    while IFS= read -r line; do
        (fresh_directory && plainly bash -c "$line" > "$work/out" 2> "$work/err")
        /usr/bin/python3 "$here/keys.py" "$work/out" "$line" || { tail -n 5 "$work/err" >&2; return 1; }
    done < <(commands json.txt)
}

# The names that hvd.h gives to a C program: macros, types with offsets, numbers, prototypes.
list_header() {
    local flags=(-I"$tree/collectives" -x c) type
    echo '#include <hvd.h>' > "$work/header.c"
    gcc "${flags[@]}" -E -dM "$work/header.c" | grep -E '^#define HVD_' || return
    gcc "${flags[@]}" -g -fno-eliminate-unused-debug-types -fno-eliminate-unused-debug-symbols -aux-info "$work/prototypes" -c \
        -o "$work/header.o" "$work/header.c" || return
    sed -n 's,^/\*.*\*/ \(extern .*hvd_.*\),\1,p' "$work/prototypes"
    gdb -batch -nx -ex 'info types ^hvd_' "$work/header.o" < /dev/null | grep -oE '\<hvd_[a-z0-9_]+;' | tr -d ';' | sort -u > "$work/types"
    [ -s "$work/types" ] || return
    while read -r type; do
        gdb -batch -nx -ex "ptype /o $type" -ex "print sizeof($type)" "$work/header.o" < /dev/null | sed "s/^/$type: /"
    done < "$work/types"
}

part_abi() {
    nm -D --defined-only --with-symbol-versions "$programs/libhvd.so.0" | cut -d' ' -f2- &&
        readelf -d "$programs/libhvd.so.0" | sed -nE 's/.*(SONAME|NEEDED)[^[]*(\[.*\])/\1 \2/p' && list_header || return
    [ "$side" = base ] || exchange_libraries
}

# A worker that was linked to one libhvd, run with another, under either hvdrun: a line for each job that does not work. The older
# libhvd is also tried below our hvdrun, and the other way round.
exchange_libraries() {
    local side linked library
    for side in base present; do
        take_side $side
        gcc -I"$tree/collectives" -o "$work/worker-$side" "$here/worker.c" -L"$programs" -lhvd || return
    done
    for side in base present; do
        for library in base present; do
            take_side $library
            local path=$programs
            take_side $side
            for linked in base present; do
                (fresh_directory && plainly LD_LIBRARY_PATH="$path" hvdrun -np 2 "$work/worker-$linked" > "$work/out" 2> "$work/err")
                [ "$(sort "$work/out" | tr '\n' ' ')" = 'rank 0 works rank 1 works ' ] ||
                    echo "hvdrun of $side, libhvd of $library: $(refusal "$work/err") (worker linked to $linked)"
            done
        done
    done
}

# A worker's sentence on the layout, or the first line of all.
refusal() { # FILE
    grep -m 1 -oE 'the control region has .*' "$1" || head -n 1 "$1"
}

# Variables of two runs of each job: values that differ between them vary (ports, names of jobs), and only their names are compared.
part_env() {
    local run line number
    for run in 1 2; do
        number=0
        while IFS= read -r line; do
            number=$((number + 1))
            (fresh_directory && plainly bash -c "$line" > "$work/out" 2> "$work/err") || { tail -n 5 "$work/err" >&2; return 1; }
            sed -e "s|$programs|BUILD|g" -e "s/^/job $number, /" "$work/out"
        done < <(commands env.txt) | sort > "$work/env.$side.$run"
    done
    cat "$work/env.$side.1" # the other one is compared in leave_out_values
}

# The names before = in lines that the two runs of a side do not share.
varying_names() {
    local side
    for side in base present; do
        comm -3 "$work/env.$side.1" "$work/env.$side.2" | tr -d '\t' | cut -d= -f1
    done | sort -u
}

leave_out_values() { # the lists of a part, in $work
    local side
    varying_names > "$work/varying"
    for side in base present; do
        awk -F= -v list="$work/varying" 'BEGIN { while ((getline name < list) > 0) varies[name] }
            { print ($1 in varies) ? $1 : $0 }' "$work/$1.$side" | sort -u > "$work/lines"
        mv "$work/lines" "$work/$1.$side"
    done
}

# ---- the comparison ----------------------------------------------------------------------------------------------------
# Marks each difference of a part as intended or not, and names the intended ones that are none.
judge() { # PART: reads differences
    local commit
    intended | while IFS= read -r line; do
        commit=${line%% |*}
        git merge-base --is-ancestor "$commit" "$base" 2> /dev/null || echo "${line#*| }"
    done > "$work/intended"
    # The list may be empty.
    awk -v part="$1 " -v list="$work/intended" '
        BEGIN {
            while ((getline line < list) > 0)
                if (index(line, part) == 1) {
                    at = index(line, " | ")
                    start[++n] = substr(line, length(part) + 1, at - length(part) - 1)
                    why[n] = substr(line, at + 3)
                }
        }
        {
            line = $0
            sub(/job [0-9]+, rank [0-9]+:/, "job *, rank *:", line)
            if (line ~ /--report r\.json.*cat r\.json: \./)
                sub(/hvdrun.*cat r\.json: \./, "report: .", line)
            for (i = 1; i <= n; i++)
                if (index(line, start[i]) == 1) {
                    used[i] = 1
                    print "intended: " start[i] " | " why[i]
                    next
                }
            print "wrong: " $0
        }
        END { for (i = 1; i <= n; i++) if (!used[i]) print "wrong: listed as intended, and no longer different: " start[i] }' |
        sort -u
}

compare() { # PART
    local side
    for side in base present; do
        take_side $side
        echo "# begin compatible: $1 of $side"
        if ! "part_$1" > "$work/$1.lines" 2> "$work/errors"; then
            not_ok "$1" "no list of $side"
            tail -n 8 "$work/errors" | sed 's/^/    # /'
            return
        fi
        sort -u "$work/$1.lines" > "$work/$1.$side"
        [ -s "$work/$1.$side" ] || { not_ok "$1" "the list of $side is empty"; return; }
    done
    [ "$1" != env ] || leave_out_values "$1"
    {
        comm -23 "$work/$1.base" "$work/$1.present" | sed 's/^/- /'
        comm -13 "$work/$1.base" "$work/$1.present" | sed 's/^/+ /'
    } | judge "$1" > "$work/judged"
    if grep -q '^wrong: ' "$work/judged"; then
        not_ok "$1" "$(grep -c '^wrong: ' "$work/judged") differences to $base"
    else
        echo "ok - compatible: $1: $(grep -c '' "$work/$1.present") lines, and $(grep -c '' "$work/judged") intended differences to $base"
    fi
    sed -e 's/^wrong: //' -e 's/^/    # /' "$work/judged" | cut -c1-400
}

# A line for a part that is none would never be judged.
if wrong=$(intended | awk -F ' [|] ' -v parts=" $all_parts " \
    'NF != 3 || split($2, word, " ") < 3 || !index(parts, " " word[1] " ")' | grep .); then
    not_ok intended "not COMMIT | PART SIGN LINE | WHY: $wrong"
fi
if ! commit=$(git rev-parse -q --verify "$base^{commit}" 2> /dev/null); then
    echo "ok - compatible # SKIP the history here has no commit $base"
    exit 0
fi
top=$PWD
trap clean_up EXIT
trap 'exit 130' INT TERM HUP
# Paths of sockets are short: this is not below TMPDIR.
work=$(mktemp -d /tmp/hvdcmp.XXXXXX) || exit 2
mkdir -m 700 "$work/run" "$work/t" || exit 2
echo "# begin compatible: building $base"
if ! build_base "$commit"; then
    not_ok build "$base cannot be built"
    tail -n 20 "$state/log" 2> /dev/null | sed 's/^/    # /'
    exit 1
fi
for part in ${COMPARE:-$all_parts}; do compare "$part"; done
exit $failed
