"""Elastic jobs whose script uses torch.distributed: the default group is made anew for each membership.

::

    dist.init_process_group("hvd")

    @hvdrun.c10d.elastic.run
    def train(state):
        ddp = DistributedDataParallel(model)
        ...

    train(hvdrun.c10d.elastic.TorchState(model, optimizer, step=0))

See hvdrun.elastic for what a commit is and when ranks come and go.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, Tuple
from urllib.parse import parse_qsl, urlparse

import torch.distributed as dist

from hvdrun import _hvd, elastic, job
from hvdrun.elastic import ObjectState, State, membership, membership_changed
from hvdrun.exceptions import HorovodInternalError
from hvdrun.torch.elastic import ElasticSampler, TorchState
from hvdrun.torch.elastic import reset as enter_next

from .store import meet

__all__ = [
    "ElasticSampler",
    "ObjectState",
    "State",
    "TorchState",
    "membership",
    "membership_changed",
    "reset",
    "run",
]

_last: Dict[str, Any] = {"backend": "hvd"}
"""How the last default group was made."""


def reset(**options: Any) -> None:
    """Enters the next membership, and makes the default group anew. Other groups are gone.

    options: for init_process_group; else backend and timeout are those of the group before.

    LeftJobError: this worker has no rank any more. DuplicateNameError: operations are pending.
    """
    if dist.is_initialized():
        _last["backend"] = dist.get_backend()
        seconds = getattr(dist.distributed_c10d._get_default_group(), "seconds", None)
        if seconds is not None:
            _last["timeout"] = timedelta(seconds=seconds)
    enter_next()
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(**{**_last, **options})


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates the training function of an elastic job. Its first argument is a State.

    When the ranks have changed, the function is called again. It makes what belongs to a group: sub-groups, and
    DistributedDataParallel of a module that the state has.
    """
    return elastic.run_fn(func, reset)


def rendezvous(url: str, plain: Callable[..., Iterator[Any]], **options: Any) -> Iterator[Tuple[Any, int, int]]:
    """torch's rendezvous env:// in an elastic job: this rank, the size, and the store of the present membership.

    plain: torch's own, for a job that is not elastic. Over deaths in the meantime it goes on to the next membership.
    """
    job.init()
    if not membership():
        yield from plain(url, **options)
        return
    given = dict(parse_qsl(urlparse(url).query))
    timeout = options.get("timeout") or dist.default_pg_timeout
    while True:
        try:
            store = meet(timeout)
            break
        except HorovodInternalError:
            if elastic.failure() is None:
                raise
            enter_next()
    yield store, int(given.get("rank", _hvd.rank())), int(given.get("world_size", _hvd.size()))

