"""Prints every path of keys in JSON documents, with the type of its value: `.ranks[].pid number`.

keys.py FILE NAME: any number of documents in FILE. The NAME stands before each path. Elements of a list share one path."""
import json
import sys

NAMES = {dict: "object", list: "list", str: "text", bool: "truth", int: "number", float: "number", type(None): "null"}


def walk(value, path, found):
    found.add(f"{path or '.'} {NAMES[type(value)]}")
    if isinstance(value, dict):
        for key, item in value.items():
            walk(item, f"{path}.{key}", found)
    elif isinstance(value, list):
        for item in value:
            walk(item, f"{path}[]", found)


found = set()
with open(sys.argv[1], encoding="utf-8") as file:
    text = file.read()
while text.strip():
    document, end = json.JSONDecoder().raw_decode(text.strip())
    walk(document, "", found)
    text = text.strip()[end:]
if not found:
    sys.exit("there is no JSON")
for line in sorted(found):
    print(f"{sys.argv[2]}: {line}")
