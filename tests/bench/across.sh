# shellcheck shell=bash disable=SC2154
# Parts of run.sh about the engine across hosts (namespaces; root): hosts (their links as fast as the machine) and shaped.

# One congestion control for all, whatever the machine's default is; by the route, since a namespace may not always choose its default.
same_tcp() { # HOSTS
    local k
    for k in $(seq 1 "$1"); do
        "$here/../hosts/hosts.sh" exec "node$k" ip route change 10.91.0.0/16 dev eth0 congctl cubic
    done
}

# The floor of 64 MiB with --encrypt on two hosts: the time in the clear, and AES of all bytes at both ends. All processors do AES at once.
encryption_row() {
    local clear encrypted bytes=67108864 speed
    clear=$(cell "allreduce $bytes" hvd_arena)
    encrypted=$(cell "allreduce $bytes" hvd_encrypt)
    [ -n "$clear" ] && [ -n "$encrypted" ] || return 0
    have openssl || { echo '  no floor of --encrypt: openssl is not installed (apt install openssl)'; return 0; }
    speed=$(openssl speed -mr -multi "$(nproc)" -seconds 1 -bytes 262144 -evp aes-128-gcm 2> /dev/null | awk -F: '/^.F:/ { print $NF }') || speed=''
    [ -n "$speed" ] || { echo '  no floor of --encrypt: openssl speed fails'; return 0; }
    echo "  AES-128-GCM of all processors: $(awk -v s="$speed" 'BEGIN { printf "%.1f", s / 1e9 }') GB/s"
    goal_least '64 MiB, 2x1 hosts, floor / --encrypt' \
        "$(awk -v c="$clear" -v e="$encrypted" -v b="$bytes" -v s="$speed" 'BEGIN { printf "%.2f", (c + 4 * b / s * 1e6) / e }')" 0.85
}

part_hosts() {
    local shape columns largest
    for shape in ${BENCH_SHAPES:-2x1 2x2 4x1}; do
        title "allreduce, f32 sum in place, $shape hosts x ranks over TCP, links not shaped"
        hosts_up "${shape%x*}" || return 0
        same_tcp "${shape%x*}"
        on_hosts "${shape%x*}" "${shape#*x}"
        columns=(hvd_arena hvd_malloc hvd_persistent hvd_shared hvd_encrypt)
        [ "$shape" != 2x1 ] || columns+=(exchange)
        begin_set "hosts.$shape" "${columns[@]}" mpich openmpi mpich5 openmpi5 gloo floor_wire floor_wire_malloc
        largest=268435456
        [ "$shape" != 4x1 ] || largest='' # it would take as long as all the others
        # shellcheck disable=SC2086 # words
        allreduce_set 8 10 12 ${BENCH_BYTES:-4 4096 65536 1048576 16777216 67108864 $largest}
        [ "$shape" != 2x1 ] || row '4 B, 2x1 hosts: 1.5 of the exchange' allreduce 4 hvd_arena '' 0.67
        [ "$shape" != 2x1 ] || encryption_row
        allreduce_rows "$shape hosts" << END
4 hvd_arena 1.0
4096 hvd_arena 1.0
65536 hvd_arena 1.0
1048576 hvd_arena 1.0
16777216 hvd_arena 0.7
67108864 hvd_arena 0.5
67108864 hvd_malloc 0.6
268435456 hvd_arena 0.5
END
        "$here/../hosts/hosts.sh" down
    done
}

# Both directions of every host's link; the queue is short, as a switch's.
shape_links() { # HOSTS RATE
    local k
    for k in $(seq 1 "$1"); do
        "$here/../hosts/hosts.sh" exec "node$k" tc qdisc add dev eth0 root tbf rate "$2" burst 256k latency 20ms
        "$here/../hosts/hosts.sh" exec head tc qdisc add dev "v$k" root tbf rate "$2" burst 256k latency 20ms
    done
}

# node2's link becomes longer: a process passes its frames on, later. It ends with head's network.
lengthen_link() { # MICROSECONDS
    local said
    "$here/../hosts/hosts.sh" exec head ip link set v2 nomaster
    coproc link { exec nsenter -t "$(cat "$HOSTS_DIR/head/pid")" -n -- "$build/bench/delay_link" v2 t2 "$1" 2> "$scratch/err"; }
    link_pid=$link_PID
    read -r -t 10 -u "${link[0]}" said && [ "$said" = ready ] || { trouble "delay_link: $(head -n 1 "$scratch/err")"; return 1; }
    "$here/../hosts/hosts.sh" exec head sh -c 'ip link set t2 master br0 && ip link set t2 up'
}

# What iperf3 carries in both directions at once, the smaller one, in bits a second.
goodput() {
    local line=''
    rm -f "$scratch/listens"
    mkfifo "$scratch/listens"
    "$here/../hosts/hosts.sh" exec node1 timeout 20 iperf3 -s -1 --forceflush > "$scratch/listens" 2>&1 < /dev/null &
    exec 8< "$scratch/listens"
    until [[ $line = *listening* ]]; do
        read -r -t 10 -u 8 line || { echo "the server says: $line" > "$scratch/err"; return 1; }
    done
    "$here/../hosts/hosts.sh" exec node2 timeout 20 iperf3 -c 10.91.0.2 --bidir -t 4 -J > "$scratch/iperf" 2> "$scratch/err" < /dev/null || :
    exec 8<&-
    /usr/bin/python3 -c 'import json, sys
said = json.load(open(sys.argv[1]))
if "error" in said:
    sys.exit(said["error"])
print(int(min(said["end"][way]["bits_per_second"] for way in ("sum_received", "sum_received_bidir_reverse"))))' "$scratch/iperf" 2> "$scratch/err"
}

# 64 MiB where the link is the limit: n hosts must each send 2(n - 1)/n of it.
shaped_case() { # HOSTS RATE DELAY_US
    local n=$1 bits bytes=67108864
    title "allreduce of 64 MiB, $n hosts, $2 each${3:+, one of them $3 us away}"
    have iperf3 || { echo "  left out: iperf3 is not installed"; return; }
    hosts_up "$n" || return 0
    link_pid=''
    same_tcp "$n"
    shape_links "$n" "$2"
    if [ -z "$3" ] || lengthen_link "$3"; then
        on_hosts "$n" 1
        begin_set "shaped.$n" hvd_arena
        longest=60 take_turns 1 allreduce "$bytes"
        bits=$(goodput) || bits=''
        if [ -n "$bits" ]; then
            awk -v b="$bits" -v n="$n" -v bytes="$bytes" 'BEGIN { printf "{\"op\":\"allreduce\",\"bytes\":%d,\"buffer\":\"floor\",\"median_us\":%.2f,\"max_us\":0.0}\n", bytes, bytes * 8 * 2 * (n - 1) / n / b * 1e6 }' >> "$lines"
            printf '  iperf3 --bidir carries %d Mbit/s in each direction\n' $((bits / 1000000))
        else
            trouble "iperf3: $(tail -n 1 "$scratch/err")"
        fi
        names+=(floor)
        table
        row "64 MiB, $n hosts at $2" allreduce "$bytes" hvd_arena '' 0.95
    fi
    [ -z "$link_pid" ] || { kill "$link_pid" 2> /dev/null || :; wait "$link_pid" 2> /dev/null || :; }
    "$here/../hosts/hosts.sh" down
}

part_shaped() {
    case ${BENCH_SHAPES:-both} in 2* | both) shaped_case 2 1gbit 1000 ;; esac
    case ${BENCH_SHAPES:-both} in 4* | both) shaped_case 4 300mbit '' ;; esac
}
