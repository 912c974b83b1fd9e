"""Is a file what a scraper of Prometheus takes, text format 0.0.4? Strictly: HELP, TYPE, then the samples of a family, all together and
once; no series twice; counters are named so and never negative, and those of the
node (hvd_node_*) never less than in the file before.

    exposition.py FILE [FILE-BEFORE]
"""

import math
import re
import sys

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SAMPLE = re.compile(rf"^({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)$")


def wrong(number, line, why):
    sys.exit(f"line {number}: {why}: {line}")


def value_of(number, line, text):
    if not re.fullmatch(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)|NaN", text):
        wrong(number, line, "no number")
    return float(text)


def read(path):
    data = open(path, "rb").read()
    if not data.endswith(b"\n"):
        sys.exit("the last line has no end")
    series, types, helped, current = {}, {}, None, None
    for number, line in enumerate(data.decode("utf-8").split("\n")[:-1], 1):
        if line.startswith("# HELP "):
            match = re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line)
            if not match or match[1] in types or match[1] == helped:
                wrong(number, line, "not a HELP line, or a second one")
            helped, current = match[1], None
        elif line.startswith("# TYPE "):
            match = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge)", line)
            if not match or match[1] != helped or match[1] in types:
                wrong(number, line, "not a TYPE line, or not behind its HELP line")
            if (match[2] == "counter") != match[1].endswith("_total"):
                wrong(number, line, "counters, and only they, end with _total")
            current = match[1]
            types[current] = match[2]
        else:
            match = SAMPLE.match(line)
            if not match or match[1] != current:
                wrong(number, line, "not a sample, or not of the family above")
            labels = re.findall(LABEL, match[2] or "")
            names = [name for name, _ in labels]
            if len(set(names)) != len(names) or any(name.startswith("__") for name in names):
                wrong(number, line, "a label twice, or one that is reserved")
            key = (current, tuple(sorted(labels)))
            if key in series:
                wrong(number, line, "a series twice")
            series[key] = value_of(number, line, match[match.lastindex])
            if types[current] == "counter" and not (series[key] >= 0 and math.isfinite(series[key])):
                wrong(number, line, "no count")
    if not series:
        sys.exit("nothing")
    return series, types


def main():
    series, types = read(sys.argv[1])
    if len(sys.argv) > 2:
        for key, before in read(sys.argv[2])[0].items():
            if key[0].startswith("hvd_node_") and types.get(key[0]) == "counter" and series.get(key, -1) < before:
                sys.exit(f"{key} was {before} and is {series.get(key)}")


main()
