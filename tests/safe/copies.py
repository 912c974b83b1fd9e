#!/usr/bin/env python3
"""copies.py HEX PID...: how many copies of these bytes are in each process: those that a core file would hold, and those in mappings that are
kept out of core files ("NAME IN_CORE HIDDEN", a line each). Root."""
import re, sys

for pid in sys.argv[2:]:
    needle, count, at = bytes.fromhex(sys.argv[1]), [0, 0], None
    try:
        name = open(f"/proc/{pid}/comm").read().strip()
        with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                row = re.match(r"([0-9a-f]+)-([0-9a-f]+) r.*? (\S*)$", line)
                if row:
                    at = (int(row[1], 16), int(row[2], 16))
                elif re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    at = None
                elif line.startswith("VmFlags:") and at:
                    try:
                        memory.seek(at[0])
                        count[" dd" in line] += memory.read(at[1] - at[0]).count(needle)
                    except (OSError, OverflowError):
                        pass
    except (FileNotFoundError, ProcessLookupError):
        continue  # it has ended
    print(name, *count)
