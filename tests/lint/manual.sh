#!/bin/bash
# Is what hvd.h declares written down? Says what is not, a line each: a function without a comment of its own (X may share that of
# X_async, or of the line before in a block of one comment), a function that no page of section 3 has in its NAME and SYNOPSIS, a
# page's name that is no function, and a constant that hvd(3) does not have.
set -u
header=${1:-collectives/hvd.h}
pages=${2:-man}

# FUNCTION LINE-BEFORE-IT: what stands just above each declaration: `comment`, a function, or nothing.
awk '
    /^#/ {next}
    {text = $0; ends = 0}
    inside {if (text !~ /\*\//) next; inside = 0; above = "comment"; next}
    text ~ /^\/\*/ {if (text ~ /\*\//) above = "comment"; else inside = 1; next}
    text ~ /^$/ {above = ""; next}
    match(text, /hvd_[a-z_]+\(/) {
        name = substr(text, RSTART, RLENGTH - 1)
        if (text ~ /\/\*/) above = "comment"
        print name, above
        above = name
    }' "$header" | while read -r name above; do
    [ "$above" = comment ] || [ "$above" = "${name}_async" ] || echo "$header: $name has no comment"
    page=$(grep -lE "^\.Nm $name( ,)?$" "$pages"/*.3)
    if [ -z "$page" ]; then
        echo "$header: $name is in the NAME of no page of section 3"
    elif ! grep -qE "^\.F[no] $name( |$)" $page; then
        echo "$page: the synopsis lacks $name"
    fi
done
sed -n 's/^\.Nm \([a-z_]*\).*/\1/p' "$pages"/hvd*.3 | sort -u | grep -vx hvd | while read -r name; do
    grep -qE "\b$name\(" "$header" || echo "$pages: $name is no function of $header"
done
sed 's,/\*.*,,' "$header" | grep -oE '\bHVD_[A-Z0-9_]+' | sort -u | grep -vx HVD_H | while read -r name; do
    grep -qE "\b$name\b" "$pages/hvd.3" || echo "$pages/hvd.3: does not mention $name"
done
