"""run(): a function of Python on all ranks of a job that hvdrun starts.

The way there: the function is pickled, and goes to every rank through standard input (hvdrun --stdin all), so no
directory has to be shared between hosts. The way back: each rank writes its result as marked lines to standard
output. The caller takes these out, and prints all other lines, so it works in a notebook too. In a failed job the
exception has the last lines of standard error.
"""

from __future__ import annotations

import base64
import collections
import io
import os
import pickle
import re
import secrets
import signal
import subprocess
import sys
import threading
from typing import IO, Any, Callable, Deque, Dict, List, Mapping, Optional, Sequence, TextIO, Tuple, Union

from .command import program
from .pickling import pickler

__all__ = ["run", "serve"]

_CHUNK = 30000  # of base64 in a line; hvdrun keeps lines of 64 KiB whole
_TAIL = 20
_OWN_FORMAT = ("HVDRUN_TAG", "HVDRUN_COLLAPSE", "HVDRUN_PREFIX_OUTPUT_WITH_TIMESTAMP", "HVDRUN_SHOW_RANK")


def _pack(func: Callable[..., Any], args: Sequence[Any], kwargs: Optional[Mapping[str, Any]], mark: str) -> bytes:
    """Returns what the ranks read. ValueError: the function cannot be pickled."""
    chosen = pickler()
    if chosen is pickle and getattr(func, "__module__", None) == "__main__":
        raise ValueError(
            f"{getattr(func, '__qualname__', func)!r} is of __main__, which the ranks do not have: "
            "pip install cloudpickle, or put the function into a module"
        )
    try:
        call = chosen.dumps((func, tuple(args), dict(kwargs or {})))
    except Exception as error:
        hint = "" if chosen is not pickle else "; pip install cloudpickle, which can pickle more"
        raise ValueError(f"the function or its arguments cannot be pickled: {error}{hint}") from error
    return pickle.dumps((mark, sys.path, call))


def serve() -> None:
    """Is what each rank executes: reads the function, calls it, and writes the result."""
    mark, path, call = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    func, args, kwargs = pickle.loads(call)
    out = os.dup(1)
    result = pickler().dumps(func(*args, **kwargs))
    sys.stdout.flush()
    text = base64.b64encode(result).decode()
    chunks = [text[begin : begin + _CHUNK] for begin in range(0, len(text), _CHUNK)]
    with open(out, "w") as stream:
        for number, chunk in enumerate(chunks):
            stream.write(f"{mark} {os.environ.get('HVD_RANK', '0')} {number + 1}/{len(chunks)} {chunk}\n")


class _Results:
    """The results in the output of the ranks."""

    def __init__(self, mark: str) -> None:
        self._line = re.compile(rf"^(.*?){mark} (\d+) (\d+)/(\d+) (\S*)$", re.DOTALL)
        self._chunks: Dict[int, List[str]] = collections.defaultdict(list)
        self._complete: Dict[int, bool] = {}

    def take(self, line: str) -> str:
        """Returns what the user is to see of a line."""
        match = self._line.match(line.rstrip("\n"))
        if match is None:
            return line
        before, rank, number, total, chunk = match.groups()
        self._chunks[int(rank)].append(chunk)
        self._complete[int(rank)] = number == total
        return before

    def values(self) -> List[Any]:
        """Returns the results by rank. RuntimeError: one is missing."""
        missing = [rank for rank, complete in self._complete.items() if not complete]
        missing += [rank for rank in range(max(self._complete, default=-1) + 1) if rank not in self._complete]
        if missing or not self._complete:
            raise RuntimeError(f"the job ended without the result of rank {min(missing, default=0)}")
        return [pickle.loads(base64.b64decode("".join(self._chunks[rank]))) for rank in sorted(self._chunks)]


def _feed(stream: IO[bytes], data: bytes) -> None:
    try:
        stream.write(data)
        stream.close()
    except BrokenPipeError:  # the job has ended; its status says why
        pass


def _show(stream: IO[bytes], to: TextIO, change: Callable[[str], str]) -> None:
    for line in io.TextIOWrapper(stream, errors="replace"):
        text = change(line)
        if text:
            to.write(text)
            to.flush()


def _job(command: Sequence[str], data: bytes, results: _Results) -> Tuple[int, List[str]]:
    """Runs hvdrun. Returns its status, and the last lines of standard error."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment = {name: value for name, value in os.environ.items() if name not in _OWN_FORMAT}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    job = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert job.stdin is not None and job.stdout is not None and job.stderr is not None
    tail: Deque[str] = collections.deque(maxlen=_TAIL)

    def keep(line: str) -> str:
        tail.append(line)
        return line

    threads = [
        threading.Thread(target=_feed, args=(job.stdin, data), daemon=True),
        threading.Thread(target=_show, args=(job.stderr, sys.stderr, keep), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        _show(job.stdout, sys.stdout, results.take)
        status = job.wait()
    except BaseException:  # ^C: hvdrun ends the ranks
        job.send_signal(signal.SIGINT)
        job.wait()
        raise
    for thread in threads:
        thread.join()
    return status, list(tail)


def _options(given: Mapping[str, Any]) -> List[str]:
    """Returns the options of hvdrun for those arguments of run() that were given."""
    flags: List[str] = []
    for flag, value in given.items():
        if value is None or value is False:
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, (list, tuple)):
            flags += [flag, ",".join(map(str, value))]
        else:
            flags += [flag, str(value)]
    return flags


def run(
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    kwargs: Optional[Mapping[str, Any]] = None,
    num_proc: int = 1,
    min_num_proc: Optional[int] = None,
    max_num_proc: Optional[int] = None,
    slots: Optional[int] = None,
    reset_limit: Optional[int] = None,
    cooldown_range: Optional[Sequence[int]] = None,
    hosts: Optional[str] = None,
    hostfile: Optional[str] = None,
    host_discovery_script: Optional[str] = None,
    start_timeout: Optional[int] = None,
    ssh_port: Optional[int] = None,
    ssh_identity_file: Optional[str] = None,
    disable_cache: Optional[bool] = None,
    output_filename: Optional[str] = None,
    verbose: Union[bool, int, None] = None,
    use_gloo: Optional[bool] = None,  # noqa: ARG001
    use_mpi: Optional[bool] = None,  # noqa: ARG001
    mpi_args: Optional[str] = None,  # noqa: ARG001
    network_interface: Optional[str] = None,
    network_interfaces: Union[str, Sequence[str], None] = None,
    executable: Optional[str] = None,
    np: Optional[int] = None,
    min_np: Optional[int] = None,
    max_np: Optional[int] = None,
) -> List[Any]:
    """Calls func(*args, **kwargs) on every rank of a job, and returns the results by rank.

    func, args and results are pickled, by cloudpickle if it is installed. num_proc (np): the number of ranks. hosts,
    hostfile, start_timeout, ssh_port, ssh_identity_file, disable_cache, output_filename, verbose and
    network_interfaces are options of hvdrun. executable: the Python of the ranks; default this one. use_gloo,
    use_mpi and mpi_args are for other launchers, and have no effect.
    ValueError: func cannot be pickled. RuntimeError: the job failed; has the status and the last lines of output.
    NotImplementedError: an argument of elastic jobs: their functions come from a program, not from run().
    """
    elastic = (min_num_proc, max_num_proc, slots, reset_limit, cooldown_range, host_discovery_script, min_np, max_np)
    if any(argument is not None for argument in elastic):
        raise NotImplementedError("run() starts jobs of a fixed size: start elastic ones with hvdrun --min-np")
    mark = f"hvdrun-result-{secrets.token_hex(16)}"
    options = _options({
        "-np": num_proc if np is None else np, "--stdin": "all", "-H": hosts, "--hostfile": hostfile,
        "--start-timeout": start_timeout, "--ssh-port": ssh_port, "--ssh-identity-file": ssh_identity_file,
        "--disable-cache": disable_cache, "--output-filename": output_filename, "--verbose": bool(verbose),
        "--network-interfaces": network_interfaces if network_interfaces is not None else network_interface,
    })  # fmt: skip
    python = [executable or sys.executable, "-c", "from hvdrun.runner import serve; serve()"]
    results = _Results(mark)
    status, tail = _job([program(), *options, *python], _pack(func, args, kwargs, mark), results)
    if status != 0:
        raise RuntimeError(f"the job ended with status {status}\n" + "".join(tail))
    return results.values()
