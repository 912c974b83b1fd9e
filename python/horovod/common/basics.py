"""The job as an object, as Horovod's modules for frameworks have it."""

from __future__ import annotations

from hvdrun import features, job

__all__ = ["HorovodBasics"]


class HorovodBasics:
    """Functions of the job and of the build, as methods. The arguments of Horovod's own class have no effect."""

    Average, Sum, Adasum, Min, Max, Product = range(6)

    def __init__(self, pkg_path: str = "", *args: object) -> None:
        pass

    init = staticmethod(job.init)
    shutdown = staticmethod(job.shutdown)
    is_initialized = staticmethod(job.is_initialized)
    start_timeline = staticmethod(job.start_timeline)
    stop_timeline = staticmethod(job.stop_timeline)
    size = staticmethod(job.size)
    local_size = staticmethod(job.local_size)
    cross_size = staticmethod(job.cross_size)
    rank = staticmethod(job.rank)
    local_rank = staticmethod(job.local_rank)
    cross_rank = staticmethod(job.cross_rank)
    is_homogeneous = staticmethod(job.is_homogeneous)
    mpi_threads_supported = staticmethod(features.mpi_threads_supported)
    mpi_enabled = staticmethod(features.mpi_enabled)
    mpi_built = staticmethod(features.mpi_built)
    gloo_enabled = staticmethod(features.gloo_enabled)
    gloo_built = staticmethod(features.gloo_built)
    nccl_built = staticmethod(features.nccl_built)
    ddl_built = staticmethod(features.ddl_built)
    ccl_built = staticmethod(features.ccl_built)
    cuda_built = staticmethod(features.cuda_built)
    rocm_built = staticmethod(features.rocm_built)
