"""Horovod's name for hvdrun.elastic."""

from hvdrun.elastic import (
    ObjectState,
    State,
    WorkerNotificationManager,
    notification_manager,
    run_fn,
)

__all__ = ["ObjectState", "State", "WorkerNotificationManager", "notification_manager", "run_fn"]
