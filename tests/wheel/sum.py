"""Adds the numbers of the ranks. The program uses the wheel and no other package."""

import array

import hvdrun as hvd

hvd.init()
total = hvd.allreduce_(array.array("f", [hvd.rank() + 1.0]), name="total", op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total[0]}", flush=True)
