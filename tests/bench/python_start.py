"""python_start.py DIRECTORY - what `import horovod.torch` and init() take after `import torch`. The ranks of a host meet in the empty
DIRECTORY in between, so that none waits in init() for another's import of torch. The slowest rank's time counts.

    import   import horovod.torch
    init     init()
    start    both"""
import os
import sys
import time

import torch

open(os.path.join(sys.argv[1], os.environ["HVD_RANK"]), "w").close()
while len(os.listdir(sys.argv[1])) < int(os.environ["HVD_LOCAL_SIZE"]):
    time.sleep(0.0005)
begun = time.perf_counter()
import horovod.torch as hvd

imported = time.perf_counter()
hvd.init()
joined = time.perf_counter()

import python_lines

for name, took in (("import", imported - begun), ("init", joined - imported), ("start", joined - begun)):
    python_lines.report(name, "start", 0, python_lines.over_ranks([took]))
