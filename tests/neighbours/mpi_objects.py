"""Objects among ranks with mpi4py: bcast, allreduce, gather. With "spawn": MPI_Comm_spawn, which is refused."""
import sys

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()

if len(sys.argv) > 1 and sys.argv[1] == "spawn":
    world.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        MPI.COMM_SELF.Spawn("/bin/true", maxprocs=1)
        print(f"{rank}/{size} spawned", flush=True)
    except MPI.Exception:
        print(f"{rank}/{size} good", flush=True)
    sys.exit(0)

told = world.bcast({"who": "zero", "list": list(range(1000))} if rank == 0 else None)
total = world.allreduce([rank], op=MPI.SUM)
gathered = world.gather({"rank": rank, "text": "x" * rank})

good = told["who"] == "zero" and len(told["list"]) == 1000
good = good and sorted(total) == list(range(size))
if rank == 0:
    good = good and [g["rank"] for g in gathered] == list(range(size))
    good = good and all(len(g["text"]) == g["rank"] for g in gathered)
print(f"{rank}/{size} {'good' if good else 'bad'}", flush=True)
