"""Checks what the documents name: links.py FILE.md...

Each link to a file must lead to a file of the tree, and its anchor to a heading of that file. Each name of a source file in
back quotes must be a file, seen from the root or from the document's folder; each name of a unit test must be one. One line is printed
for each fault.
"""
import glob
import os
import re
import sys

LINK = re.compile(r'\]\(([^)\s]+)\)')
NAME = re.compile(r'`([\w.*/-]+/[\w.*-]+\.(?:c|h|cu|sh|py|md|mk|proto|txt|sed|yaml|conf|sbatch))`')
TEST = re.compile(r'`(test_[a-z0-9_]+)`')


def without_code(text):
    """The text with an empty line for each line of a fenced block, so that numbers of lines stay."""
    lines, fenced = [], False
    for line in text.split('\n'):
        fence = line.startswith('```')
        lines.append('' if fence or fenced else line)
        fenced ^= fence
    return lines


def anchors(path):
    with open(path, encoding='utf-8') as file:
        heads = [line.lstrip('#').strip() for line in without_code(file.read()) if re.match('#+ ', line)]
    return {re.sub(r'[^\w\- ]', '', re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', head).lower()).replace(' ', '-') for head in heads}


def fault_of_link(path, target):
    if re.match('[a-z]+:', target):
        return None
    name, _, anchor = target.partition('#')
    there = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
    if not os.path.exists(there):
        return f'links to {target}, which is not there'
    if anchor and anchor not in anchors(there):
        return f'links to {target}, and {there} has no such heading'
    return None


def fault_of_name(path, name):
    name = re.sub('NAME|FOLDER|TOPIC', '*', name)  # a pattern in words
    if name.startswith(('/', 'build/')) or any(glob.glob(os.path.join(base, name)) for base in ('.', os.path.dirname(path) or '.')):
        return None
    return f'names {name}, which is not there'


def fault_of_test(_, name):
    return None if glob.glob(f'tests/unit/**/{name}.c', recursive=True) else f'names the unit test {name}, which is not there'


def faults(path):
    with open(path, encoding='utf-8') as file:
        lines = without_code(file.read())
    for number, line in enumerate(lines, 1):
        for pattern, fault_of in CHECKS:
            for fault in filter(None, (fault_of(path, word) for word in pattern.findall(line))):
                yield f'{path}:{number}: {fault}'


CHECKS = ((LINK, fault_of_link), (NAME, fault_of_name), (TEST, fault_of_test))

for document in sys.argv[1:]:
    for text in faults(document):
        print(text)
