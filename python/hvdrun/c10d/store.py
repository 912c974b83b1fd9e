"""The store of an elastic job: what the ranks of one membership tell each other besides operations.

    rank 0 listens -> tells its addresses through the engine -> a rank connects with its first request
    the next membership: the same listener while rank 0 lives, and keys of its own

A store of torch knows nothing of ranks that die. So each wait of this one looks whether the membership has ended.
Groups of the backend hvd need no request: in 1.13 a client's process ends when rank 0 dies in the middle of one.
"""

from __future__ import annotations

import contextlib
import fcntl
import inspect
import os
import secrets
import socket
import struct
import time
from collections import deque
from datetime import timedelta
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

import torch.distributed as dist

from hvdrun import _hvd, elastic, objects
from hvdrun.exceptions import HorovodInternalError, from_status

__all__ = ["MembershipStore", "meet"]

_ALL = 0  # the process set
_PEER = -4  # HVD_ERR_PEER
_GET_ADDRESS = 0x8915  # SIOCGIFADDR
_SECONDS_TO_CONNECT = 10.0
_SECONDS_TO_HEAR = 1.0
"""A rank's connections end a little before the engine knows of its death."""
_PAUSE = 0.002
_BARRIER = dist.distributed_c10d.STORE_BASED_BARRIER_PREFIX
_COUNTS = "group_name" not in inspect.signature(dist.distributed_c10d._store_based_barrier).parameters
"""Before 2.1 torch ends init_process_group and new_group by a barrier of all ranks, which counts by add() and polls."""
_CHECKS = hasattr(dist.Store, "check")
"""1.13's Python cannot ask whether a key is there without a wait. Then a counter beside each key tells."""

_StoreError: Callable[[str], RuntimeError] = getattr(dist, "DistStoreError", RuntimeError)


class _Listener(NamedTuple):
    """Where rank 0 listens. key: of this listener alone."""

    addresses: List[str]
    port: int
    key: str


_own: Any = None
_own_listener: Optional[_Listener] = None
_connected: Any = None
_connected_to = ""
_kept: deque[MembershipStore] = deque(maxlen=4)
"""torch's C++ keeps the store of a group, but not the Python object. Groups of former memberships may wait still."""
_turns = 0
"""How many groups of all ranks this rank 0 has made."""


class MembershipStore(dist.Store):
    """The keys of one default group. HorovodInternalError: a rank's death has ended the membership."""

    def __init__(self, listener: _Listener, turn: int, timeout: timedelta) -> None:
        super().__init__()
        self._listener = listener
        self._prefix = f"{listener.key}/{turn}"
        self._store: Any = None
        self._membership = _hvd.membership()
        self._seconds = timeout.total_seconds()

    def _failure(self) -> Optional[Exception]:
        if not _hvd.is_initialized() or _hvd.membership() != self._membership:
            return from_status(_PEER, f"the store ended with membership {self._membership}")
        return elastic.failure()

    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            if self._store is None:
                self._store = dist.PrefixStore(self._prefix, _connect(self._listener))
            return getattr(self._store, name)(*arguments)
        except RuntimeError as error:
            failure = _await_failure(self._failure)
            if failure is None:
                raise
            raise failure from error

    def _marked(self, key: str, answer: Any) -> Any:
        """The key is there now."""
        if not _CHECKS:
            self._ask("add", f"there/{key}", 1)
        return answer

    def set(self, key: str, value: Any) -> None:
        self._marked(key, self._ask("set", key, value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        found: bytes = self._ask("get", key)
        return found

    def add(self, key: str, value: int) -> int:
        """Adds, and returns the sum. The engine does torch's barrier; after a death the next operation tells."""
        if _COUNTS and key.rpartition("/")[2].startswith(_BARRIER):
            if value == 0 and self._failure() is None:
                with contextlib.suppress(HorovodInternalError):
                    _hvd.barrier(_ALL)
            return _hvd.size()
        found: int = self._marked(key, self._ask("add", key, value))
        return found

    def check(self, keys: Sequence[str]) -> bool:
        if _CHECKS:
            return bool(self._ask("check", list(keys)))
        return all(self._ask("add", f"there/{key}", 0) > 0 for key in keys)

    def wait(self, keys: Sequence[str], timeout: Optional[timedelta] = None) -> None:
        """Waits until all keys are there. RuntimeError: they are not there in time."""
        until = time.monotonic() + (self._seconds if timeout is None else timeout.total_seconds())
        while not self.check(keys):
            failure = self._failure()
            if failure is not None:
                raise failure
            if time.monotonic() > until:
                raise _StoreError(f"wait timeout: {', '.join(keys)} are not in the store")
            time.sleep(_PAUSE)

    def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
        found: bytes = self._marked(key, self._ask("compare_set", key, expected, desired))
        return found

    def delete_key(self, key: str) -> bool:
        if not _CHECKS:
            self._ask("delete_key", f"there/{key}")
        gone: bool = self._ask("delete_key", key)
        return gone

    def num_keys(self) -> int:
        number: int = self._ask("num_keys")
        return number

    deleteKey, getNumKeys = delete_key, num_keys  # what torch's C++ calls

    def append(self, key: str, value: Any) -> None:
        self._marked(key, self._ask("append", key, value))

    def multi_get(self, keys: Sequence[str]) -> List[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return False

    def clone(self) -> MembershipStore:
        return self

    def set_timeout(self, timeout: timedelta) -> None:
        self._seconds = timeout.total_seconds()
        super().set_timeout(timeout)


def _await_failure(failure: Callable[[], Optional[Exception]]) -> Optional[Exception]:
    """Returns what has ended the membership, when a connection has ended. None: it goes on."""
    until = time.monotonic() + _SECONDS_TO_HEAR
    found = failure()
    while found is None and time.monotonic() < until:
        time.sleep(_PAUSE)
        found = failure()
    return found


# ---- the meeting ----


def meet(timeout: timedelta) -> MembershipStore:
    """Returns the store of a new default group. All ranks call it. HorovodInternalError: a rank has died."""
    global _turns
    _turns += 1
    mine = (_listen(), _turns) if _hvd.rank() == 0 else None
    listener, turn = objects.broadcast("c10d.store", mine, 0)
    _kept.append(MembershipStore(listener, turn, timeout))
    return _kept[-1]


def _listen() -> _Listener:
    """Returns where this rank listens. While it lives, it listens there."""
    global _own, _own_listener
    if _own_listener is None:
        _own = _open_listener()
        _own_listener = _Listener([], _own.port, secrets.token_hex(8))
    return _own_listener._replace(addresses=_addresses())


def _open_listener() -> Any:
    """The port that hvdrun has chosen for the first rank 0 may be the only one that other hosts reach."""
    if os.environ.get("HVD_WORKER") == "0":
        with contextlib.suppress(RuntimeError, ValueError):
            return _tcp_store("127.0.0.1", int(os.environ.get("MASTER_PORT", "")), True)
    return _tcp_store("127.0.0.1", 0, True)


def _tcp_store(host: str, port: int, listens: bool) -> Any:
    arguments = {"is_master": listens, "wait_for_workers": False}
    limit = timedelta(seconds=_SECONDS_TO_CONNECT)
    if os.environ.get("USE_LIBUV") == "0":
        arguments["use_libuv"] = False
    return dist.TCPStore(host, port, timeout=limit, **arguments)


def _connect(listener: _Listener) -> Any:
    """Returns the store that rank 0 serves. One connection does for all memberships of a rank 0."""
    global _connected, _connected_to
    if _own_listener is not None and listener.key == _own_listener.key:
        return _own
    if _connected_to != listener.key:
        _connected, _connected_to = _open_connection(listener), listener.key
    return _connected


def _open_connection(listener: _Listener) -> Any:
    reasons = []
    for address in listener.addresses:
        try:
            socket.create_connection((address, listener.port), _SECONDS_TO_CONNECT).close()
            return _tcp_store(address, listener.port, False)
        except (OSError, RuntimeError) as error:
            reasons.append(f"{address}: {error}")
    raise RuntimeError(f"the store of rank 0 is not reached at port {listener.port}: {'; '.join(reasons)}")


def _addresses() -> List[str]:
    """Returns addresses of this host, the likeliest for other hosts first."""
    if _hvd.size() == _hvd.local_size():
        return ["127.0.0.1"]
    chosen = os.environ.get("MASTER_ADDR", "")
    found = [chosen] if _is_here(chosen) else []
    for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(","):
        found += _addresses_of(name)
    with contextlib.suppress(OSError):
        found += [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    others = [address for address in dict.fromkeys(found) if not address.startswith("127.") and address != "::1"]
    return others or ["127.0.0.1"]


def _is_here(address: str) -> bool:
    """Returns whether this host has the address."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(where)
    except (OSError, IndexError):
        return False
    return True


def _addresses_of(name: str) -> List[str]:
    """Returns the addresses of an interface, without those of IPv6 that need its name."""
    found = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        answer = fcntl.ioctl(asking, _GET_ADDRESS, struct.pack("256s", name.encode()[:15]))
        found.append(socket.inet_ntoa(answer[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:
        for digits, _, _, scope, _, interface in map(str.split, file):
            if interface == name and scope == "00":
                found.append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found
