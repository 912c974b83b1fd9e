"""Makes the backend hvd known to torch.distributed.

PyTorch calls register() at the end of its import, by the entry point torch.backends of hvdrun's package. Nothing of
hvdrun is imported before a group is made.
"""

import os
import sys
from typing import Any

__all__ = ["register"]


def _create(options: Any, backend_options: Any) -> Any:
    from hvdrun.c10d.group import create

    return create(options, backend_options)


def _do_without_libuv(dist: Any) -> None:
    """Chooses torch's older store where torch was built without libuv, as Debian 13's is, and asks for libuv anyway.

    Only under hvdrun: opening a store takes a millisecond.
    """
    if "HVD_RANK" not in os.environ or "USE_LIBUV" in os.environ:
        return
    try:
        dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False, use_libuv=True)
    except TypeError:  # an older torch, without libuv
        pass
    except RuntimeError as error:
        if "libuv" in str(error):
            os.environ["USE_LIBUV"] = "0"


def _meet_in_elastic_jobs() -> None:
    """The environment has the ranks of the start. So env:// asks the library, and meets in a store of the job."""
    if "HVD_ELASTIC" not in os.environ:
        return
    handlers = sys.modules["torch.distributed.rendezvous"]._rendezvous_handlers
    plain = handlers["env"]

    def meet(url: str, **options: Any) -> Any:
        from hvdrun.c10d.elastic import rendezvous

        return rendezvous(url, plain, **options)

    handlers["env"] = meet


def register() -> None:
    """Never raises: a torch without the backend is better than none."""
    try:
        dist = sys.modules.get("torch.distributed")
        if dist is None or not dist.is_available() or hasattr(dist.Backend, "HVD"):
            return
        try:
            dist.Backend.register_backend("hvd", _create, extended_api=True, devices=["cpu", "cuda"])
        except TypeError:  # before 2.0 there are no devices
            dist.Backend.register_backend("hvd", _create, extended_api=True)
        _do_without_libuv(dist)
        _meet_in_elastic_jobs()
    except Exception as error:
        print(f"hvdrun: the backend hvd of torch.distributed is not known: {error}", file=sys.stderr)
