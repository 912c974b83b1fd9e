# figures.awk - tables and verdicts from the lines of JSON that the bench's programs print, for compare.sh.
#
#   what=table names='hvd_arena mpich ...' said='gloo:missing ...'
#       medians, and p10 to p90 of the iterations, a row for each operation and size; in Markdown, so that it can be pasted
#   what=row row='allreduce 4' ours=hvd_arena label=TEXT limit=0.25 share=0.8 floors='floor,...'
#       one row of the goals: ours is at most limit ("": no such goal) of the best peer, and reaches share of the fastest of the
#       floors; without a share, or in spite of it, 0.85 of the floor is enough. The limit holds with a barrier before each call, and
#       in a loop. A figure whose p90 is more than twice its p10 over the runs, alone and beside the peer, is unstable: it is not met.
#       A floor that is slower than the best peer is no floor: then 0.85 of it is not enough
#   what=over row='allreduce 4' ours=torch peers=hvd_arena label=TEXT limit=6
#       the same for a goal in microseconds: ours takes at most limit more than the other
#   what=kept row='allreduce 4' ours=hvd_arena         how many of its runs can be compared; without such a column, the most of all columns
#   what=value row='allreduce 4' ours=hvd_arena        its median
#
# A line's "turn" says with which lines of the others it was measured: a ratio, or a difference, is the median of those of such pairs.
#
# A line's "exchange_ns" says how far the processors were from each other (core_exchange.c), 0: that changed during the run. Only runs
# with about the same figure can be compared. Of a row, the figure that most runs have is taken, and the other runs are left out.
function field(key, text) {
    if (!match($0, "\"" key "\":\"?[^\",}]*"))
        return ""
    text = substr($0, RSTART, RLENGTH)
    sub(/^"[^"]*":"?/, "", text)
    return text
}

function sorted(list, n, i, k, v) {
    for (i = 2; i <= n; i++) {
        v = list[i]
        for (k = i - 1; k >= 1 && list[k] > v; k--)
            list[k + 1] = list[k]
        list[k + 1] = v
    }
}

function middle(list, n) {
    if (!n)
        return 0
    sorted(list, n)
    return (list[int((n + 1) / 2)] + list[int((n + 2) / 2)]) / 2
}

# Over the runs of one cell.
function over(values, cell, list, i) {
    for (i = 1; i <= runs[cell]; i++)
        list[i] = values[cell, i] + 0
    return middle(list, runs[cell])
}

# p90 / p10 of a sorted list.
function spread_of(list, n) {
    return n < 3 ? 1 : list[n + 1 - int((n + 9) / 10)] / list[int((n + 9) / 10)]
}

function compare(a, b) {
    return what == "over" ? a - b : a / b
}

# The median of a / b (what=over: a - b) over pairs, else of the medians; low and high of the pairs are left in `least` and `most`, their
# number in `pairs`, their spread in `spread`.
function ratio(values, row, a, b, i, k, list) {
    pairs = 0
    for (i = 1; i <= runs[row, a]; i++)
        for (k = 1; k <= runs[row, b]; k++)
            if (turn[row, a, i] == turn[row, b, k] && values[row, b, k] > 0)
                list[++pairs] = compare(values[row, a, i], values[row, b, k])
    spread = 1
    if (!pairs)
        return runs[row, a] && runs[row, b] && over(values, row SUBSEP b) ? compare(over(values, row SUBSEP a), over(values, row SUBSEP b)) : 0
    sorted(list, pairs)
    spread = what == "over" ? 1 : spread_of(list, pairs)
    least = list[1]
    most = list[pairs]
    return middle(list, pairs)
}

# The fastest of some columns, "": none has a figure.
function fastest(row, columns, list, n, i, v, least_v, name) {
    n = split(columns, list, /[ ,]/)
    for (i = 1; i <= n; i++) {
        v = over(median, row SUBSEP list[i])
        if (v && (name == "" || v < least_v)) {
            least_v = v
            name = list[i]
        }
    }
    return name
}

function short(v) {
    return sprintf(v < 10 ? "%.2f" : v < 100 ? "%.1f" : "%.0f", v)
}

# Looks for the figures of the exchange that most runs of a row have, none more than 1.5 times another one: `closest` to `farthest`.
function find_exchange(row, column, n, i, k, list, all, from, most) {
    closest = farthest = 0
    n = split(columns[row], column, " ")
    for (i = 1; i <= n; i++)
        for (k = 1; k <= runs[row, column[i]]; k++)
            if (exchange[row, column[i], k] > 0)
                list[++all] = exchange[row, column[i], k]
    sorted(list, all)
    for (i = from = 1; i <= all; i++) {
        while (list[i] > 1.5 * list[from])
            from++
        if (i - from + 1 > most) {
            most = i - from + 1
            closest = list[from]
            farthest = list[i]
        }
    }
}

# Where no run of the row has a figure, there is one processor.
function can_compare(run) {
    return exchange[run] < 0 && !farthest || exchange[run] > 0 && exchange[run] >= closest && exchange[run] <= farthest
}

function keep_run(cell, to, from) {
    median[cell, to] = median[cell, from]
    p10[cell, to] = p10[cell, from]
    p90[cell, to] = p90[cell, from]
    turn[cell, to] = turn[cell, from]
    loop[cell, to] = loop[cell, from]
    loops[cell] += loop[cell, to] > 0
}

# Leaves out the runs that cannot be compared.
function keep_comparable(row, column, n, i, k, kept, cell) {
    find_exchange(row)
    n = split(columns[row], column, " ")
    for (i = 1; i <= n; i++) {
        cell = row SUBSEP column[i]
        kept = loops[cell] = 0
        for (k = 1; k <= runs[cell]; k++)
            if (can_compare(cell SUBSEP k))
                keep_run(cell, ++kept, k)
        left_out[cell] = runs[cell] - kept
        distance[cell] = closest " to " farthest " ns"
        runs[cell] = kept
    }
}

function most_kept(row, column, n, i, most) {
    n = split(columns[row], column, " ")
    for (i = 1; i <= n; i++)
        most = runs[row, column[i]] > most ? runs[row, column[i]] : most
    return most + 0
}

function size_text(bytes) {
    return bytes >= 1048576 ? sprintf("%.4g MiB", bytes / 1048576) : bytes >= 1024 ? sprintf("%.4g KiB", bytes / 1024) : bytes " B"
}

function row_text(row, part) {
    split(row, part, " ")
    return (operations > 1 ? part[1] " " : "") size_text(part[2])
}

# 0.25 of the peer is what the goals speak of; of a floor, which share of what it allows is reached.
function part_text(row, a, b, r) {
    r = a == "" || b == "" ? 0 : ratio(median, row, a, b)
    return r ? sprintf("%.2f", r) : "-"
}

function heading(columns, n, i, list, line, rule) {
    n = split(columns, list, "|")
    for (i = 1; i <= n; i++) {
        line = line sprintf(i == 1 ? "| %-21s " : "| %12s ", list[i])
        rule = rule (i == 1 ? "|-----------------------" : "|-------------:")
    }
    print line "|"
    print rule "|"
}

function state_of(row, name, list, n, i, part) {
    if (left_out[row, name])
        return "left out"
    n = split(said, list, " ")
    for (i = 1; i <= n; i++) {
        split(list[i], part, ":")
        if (part[1] == name)
            return part[2]
    }
    return "-"
}

function table(n, name, i, s, row, cell, v, columns, peer, with_floor) {
    n = split(names, name, " ")
    columns = "us"
    for (i = 1; i <= n; i++) {
        columns = columns "|" name[i]
        with_floor = with_floor || name[i] == "floor"
    }
    heading(columns "|arena/peer|malloc/peer" (with_floor ? "|floor/arena|floor/malloc" : ""))
    for (s = 1; s <= rows; s++) {
        row = row_of[s]
        peer = fastest(row, PEERS)
        printf "| %-21s ", row_text(row)
        for (i = 1; i <= n; i++) {
            v = over(median, row SUBSEP name[i])
            printf "| %12s ", v ? short(v) : state_of(row, name[i])
        }
        printf "| %12s | %12s ", part_text(row, "hvd_arena", peer), part_text(row, "hvd_malloc", peer)
        if (with_floor)
            printf "| %12s | %12s ", part_text(row, "floor", "hvd_arena"), part_text(row, fastest(row, FLOORS), "hvd_malloc")
        print "|"
    }
    print "\np10 to p90 of the iterations of a run, and how many runs:\n"
    columns = "us"
    for (i = 1; i <= n; i++)
        columns = columns "|" name[i]
    heading(columns)
    for (s = 1; s <= rows; s++) {
        row = row_of[s]
        printf "| %-21s ", row_text(row)
        for (i = 1; i <= n; i++) {
            cell = row SUBSEP name[i]
            printf "| %12s ", runs[cell] ? short(over(p10, cell)) "-" short(over(p90, cell)) " " runs[cell] : state_of(row, name[i])
        }
        print "|"
    }
}

function goal_text() {
    if (what == "over")
        return "<= " limit " us over " peers
    return (limit != "" ? "<= " limit " of " (peers == PEERS ? "the best peer" : peers) : "") (limit != "" && share != "" ? ", " : "") \
        (share != "" ? ">= " share " of the floor" : "")
}

# Of the runs of one column.
function own_spread(cell, list, i) {
    for (i = 1; i <= runs[cell]; i++)
        list[i] = median[cell, i]
    sorted(list, runs[cell])
    return spread_of(list, runs[cell])
}

# Few pairs say nothing of the spread.
function calmer(jumps) {
    return pairs > 2 && spread < jumps ? spread : jumps
}

function range_text() {
    return pairs > 1 ? sprintf(" (%.2f to %.2f)", least, most) : pairs ? " (one pair)" : " (medians, no pair)"
}

function verdict(peer, bound, by_peer, near, is_floor, r, text, in_loop, jumps) {
    peer = limit != "" ? fastest(row, peers) : ""
    bound = fastest(row, floors)
    jumps = own_spread(row SUBSEP ours)
    if (!runs[row, ours]) {
        text = left_out[row, ours] ? "the processors moved during all runs" : "not measured"
    } else {
        if (peer != "") {
            r = ratio(median, row, ours, peer)
            jumps = calmer(jumps)
            by_peer = r <= limit
            text = sprintf("%.2f %s %s", r, what == "over" ? "us over" : "of", peer) range_text()
            in_loop = what == "over" || !loops[row, peer] || !loops[row, ours] ? 0 : ratio(loop, row, ours, peer)
            by_peer = by_peer && in_loop <= limit
            text = text (in_loop ? sprintf(", %.2f in a loop", in_loop) : "")
        } else if (limit != "") {
            text = "no peer"
        }
        if (bound != "") {
            near = ratio(median, row, bound, ours)
            jumps = calmer(jumps)
            text = text (text != "" ? ", " : "") sprintf("%.2f of the %s", near, bound) range_text()
            is_floor = peer == "" || over(median, row SUBSEP bound) <= over(median, row SUBSEP peer)
            text = text (is_floor ? "" : ", which is slower than the peer")
        }
        if (text == "")
            text = "no run of the floor at the same distance"
        if (left_out[row, ours] && runs[row, ours])
            text = text sprintf("; of %d runs, %d at an exchange of %s", runs[row, ours] + left_out[row, ours], runs[row, ours], distance[row, ours])
        text = text (jumps > 2 ? sprintf(", unstable: p90 is %.1f of p10", jumps) : "")
        met = jumps > 2 ? 0 : is_floor && near >= 0.85 || (limit == "" || by_peer || peer == "") && (share == "" ? by_peer : near >= share)
    }
    printf "| %-38s | %-44s | %s | %s |\n", label, goal_text(), text, met ? "met" : "NOT met"
}

BEGIN {
    PEERS = "mpich openmpi mpich5 openmpi5 gloo"
    if (peers == "")
        peers = PEERS
    FLOORS = "floor_malloc,floor_readv"
}

/"bytes":/ {
    name = field("name")
    if (name == "")
        name = field("buffer")
    row_key = (field("row") != "" ? field("row") : field("op")) " " field("bytes")
    if (!(row_key in known)) {
        known[row_key] = ++rows
        row_of[rows] = row_key
        operation = row_key
        sub(/ .*/, "", operation)
        if (!(operation in known_operation)) {
            known_operation[operation] = 1
            operations++
        }
    }
    if (!((row_key, name) in runs))
        columns[row_key] = columns[row_key] " " name
    k = ++runs[row_key, name]
    median[row_key, name, k] = field("median_us") + 0
    p10[row_key, name, k] = field("p10_us") + 0
    p90[row_key, name, k] = field("p90_us") + 0
    turn[row_key, name, k] = field("turn")
    loop[row_key, name, k] = field("loop_us") + 0
    exchange[row_key, name, k] = field("exchange_ns") == "" ? -1 : field("exchange_ns") + 0
}

END {
    for (s = 1; s <= rows; s++)
        keep_comparable(row_of[s])
    if (what == "table")
        table()
    else if (what == "kept")
        print (row, ours) in runs ? runs[row, ours] : most_kept(row)
    else if (what == "row" || what == "over")
        verdict()
    else if (runs[row, ours])
        printf "%.3f\n", over(median, row SUBSEP ours)
}
