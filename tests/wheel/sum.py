"""A job that needs nothing but the wheel: the ranks' numbers are added."""

import array

import hvdrun as hvd

hvd.init()
total = hvd.allreduce_(array.array("f", [hvd.rank() + 1.0]), name="total", op=hvd.Sum)
print(f"rank {hvd.rank()} of {hvd.size()}: {total[0]}", flush=True)
