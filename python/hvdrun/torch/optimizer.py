"""DistributedOptimizer: an optimizer whose gradients are those of all ranks.

The way of a step: hooks see each gradient when backward has finished it. When the last one of a unit
(buckets.py) is there, the unit's operation starts, while backward goes on. step() starts what is left, waits for
all units, and calls the optimizer's own step().

The units are cut in the first synchronize(), when it is known which gradients are sparse. A parameter that no rank
has used is None for the optimizer's own step, as in a job of one rank.
"""

from __future__ import annotations

import hashlib
import inspect
import warnings
import weakref
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple, Type, Union

import torch

from hvdrun import _hvd
from hvdrun.lists import split_list
from hvdrun.process_sets import ProcessSet, global_process_set, set_id_of
from hvdrun.reductions import Adasum, Average

from .adasum import make_adasum_optimizer
from .autograd import allgather
from .buckets import Bucket, Options, Sparse, Unit, cut_into_units
from .compression import Compression, Compressor
from .naming import full_name
from .wrapping import Named, named_parameters_of, wrap

__all__ = ["DistributedOptimizer", "forget_units"]

Groups = Union[int, Sequence[Sequence[torch.Tensor]]]

BOR = 7
_TOUCHED = 1
_SPARSE = 2
_KNOWN = 4
_used: Dict[int, int] = {}
"""The number of optimizers that were used in each process set."""
_exchanges: weakref.WeakSet[Exchange] = weakref.WeakSet()


def forget_units() -> None:
    """The job has ended: the optimizers make new units in the next job. Gradients stay where they are."""
    for exchange in list(_exchanges):
        exchange.forget()
    _used.clear()


class Exchange:
    """The gradients of one optimizer on their way between the ranks."""

    def __init__(
        self, named: Named, optimizer: torch.optim.Optimizer, passes: int, groups: Optional[Groups],
        sparse_as_dense: bool, options: Options,
    ) -> None:  # fmt: skip
        self.optimizer = weakref.ref(optimizer)
        self.names = {id(parameter): name for name, parameter in named}
        self.prefix: Optional[str] = None
        self.passes = passes
        self.groups = groups
        self.sparse_as_dense = sparse_as_dense
        self.options = options
        self.units: Optional[List[Unit]] = None
        self.unit_of: Dict[int, Unit] = {}
        self.left: Dict[int, int] = {}
        """Backward passes until the gradient of a parameter travels."""
        self.hooked: Set[int] = set()
        self.touched: Set[int] = set()
        """Parameters with a gradient on this rank; after synchronize() on any rank."""
        self.fired = False
        """Backward has run since the last synchronize()."""
        self.hidden: List[torch.Tensor] = []
        """Parameters whose gradients hide_unused() has taken away."""
        self.accumulators: List[Any] = []
        self.watched: Named = []
        """The parameters that have hooks, with their names."""
        self.seen: List[int] = []
        """What the optimizer's parameters were then; see add_hooks()."""
        self.add_hooks()
        _exchanges.add(self)

    # ---- parameters and hooks ----

    def parameters(self) -> List[torch.Tensor]:
        """Returns the optimizer's parameters; also those that the script has added since."""
        optimizer = self.optimizer()
        groups = [] if optimizer is None else optimizer.param_groups
        return [parameter for group in groups for parameter in group["params"]]

    def add_hooks(self) -> None:
        """Watches the parameters that need a gradient and are not watched yet."""
        parameters = self.parameters()
        seen = [id(parameter) if parameter.requires_grad else 0 for parameter in parameters]
        if seen == self.seen:
            return
        self.seen = seen
        for number, parameter in enumerate(parameters):
            if parameter.requires_grad and id(parameter) not in self.hooked:
                self.names.setdefault(id(parameter), f"parameter.{number}")
                self.left[id(parameter)] = self.passes
                self.hooked.add(id(parameter))
                self._hook(parameter)
        watched = [parameter for parameter in parameters if id(parameter) in self.hooked]
        self.watched = [(self.names[id(parameter)], parameter) for parameter in watched]

    def _hook(self, parameter: torch.Tensor) -> None:
        exchange = weakref.ref(self)

        def finished(*_: Any) -> None:
            alive = exchange()
            if alive is not None:
                alive.gradient_finished(parameter)

        if hasattr(parameter, "register_post_accumulate_grad_hook"):
            parameter.register_post_accumulate_grad_hook(finished)
            return
        # The node that accumulates lives as long as something refers to it.
        with torch.enable_grad():
            accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
        accumulator.register_hook(finished)
        self.accumulators.append(accumulator)

    def gradient_finished(self, parameter: torch.Tensor) -> None:
        """Is called when backward has added to the gradient of a parameter."""
        key = id(parameter)
        self.fired = True
        self.touched.add(key)
        if self.left[key] <= 0:
            raise AssertionError(
                "a gradient came more often than backward_passes_per_step before step(): "
                "give the number of backward passes of a step to DistributedOptimizer"
            )
        self.left[key] -= 1
        unit = self.unit_of.get(key)
        if self.left[key] or unit is None:
            return
        unit.waiting -= 1
        if unit.waiting <= 0 and unit.pending is None and self._complete(unit) and unit.fits():
            unit.start()

    def _complete(self, unit: Unit) -> bool:
        """Returns True if backward will add to no gradient of the unit; parameters may have been unfrozen."""
        return all(not self.left.get(id(p), 0) for p in unit.parameters if p.requires_grad)

    def set_passes(self, passes: int) -> None:
        self.passes = passes
        for key in self.left:
            self.left[key] = passes

    # ---- the units ----

    def _name(self) -> str:
        """Returns the name of the optimizer: its number in the order of first use, which is the same on all ranks."""
        if self.prefix is None:
            set_id = set_id_of(self.options.process_set)
            number = _used.setdefault(set_id, 0)
            _used[set_id] += 1
            self.prefix = f"DistributedOptimizer.{number}"
        return self.prefix

    def _compare(self, named: Named) -> None:
        """Checks that the ranks have the same parameters. ValueError: they differ."""
        words = [f"{name} {tuple(p.shape)} {p.stride()} {p.dtype} {p.device.type}" for name, p in named]
        own = hashlib.sha256("\n".join(words).encode()).digest()[:8]
        # A bit that is set in both halves differs between ranks. Ranks that have joined give zeros.
        seen = bytearray(own + bytes(byte ^ 255 for byte in own))
        set_id = set_id_of(self.options.process_set)
        name = full_name("allreduce", f"{self._name()}.compared", set_id)
        _hvd.allreduce(name, seen, None, BOR, set_id, 1.0, 1.0, 0, None)
        if not any(seen[index] & seen[index + 8] for index in range(8)):
            return
        digest = torch.tensor([int.from_bytes(own, "little", signed=True)])
        digests = allgather(digest, f"{self._name()}.parameters", self.options.process_set).tolist()
        others = [rank for rank, other in enumerate(digests) if other != digests[0]]
        if others:
            raise ValueError(
                f"the parameters of ranks 0 and {others[0]} of the process set differ in name, order, shape, strides, "
                f"dtype or device; this rank has {len(named)}, the first is {words[0] if words else 'none'}"
            )

    def _cut(self, named: Named, seen: List[int]) -> None:
        """Makes the units of parameters. seen: what the ranks know of each gradient."""
        sparse = [bool(flags & _SPARSE) and not self.sparse_as_dense for flags in seen]
        groups = self.groups
        if isinstance(groups, int):
            groups = split_list([parameter for _, parameter in named], groups)
        units = cut_into_units(named, groups, sparse, self._name(), self.options)
        self.units = (self.units or []) + units
        for unit in units:
            for parameter in unit.parameters:
                self.unit_of[id(parameter)] = unit

    def _replace_misfits(self) -> None:
        """Makes new units of those whose parameters have another dtype, shape or device than before."""
        for unit in [unit for unit in self.units or () if unit.pending is None and not unit.fits()]:
            assert self.units is not None
            self.units.remove(unit)
            members = [(self.names[id(parameter)], parameter) for parameter in unit.parameters]
            self._cut(members, [0] * len(members))

    def _flags(self, named: Named) -> bytearray:
        """Returns what this rank knows of each gradient."""
        flags = bytearray(len(named))
        for index, (_, parameter) in enumerate(named):
            unit, grad = self.unit_of.get(id(parameter)), parameter.grad
            flags[index] = (_KNOWN if unit is not None else 0) | (_SPARSE if isinstance(unit, Sparse) else 0)
            if grad is None:
                continue
            touched = id(parameter) in self.touched or self._set_by_script(parameter)
            flags[index] |= (_TOUCHED if touched else 0) | (_SPARSE if grad.is_sparse else 0)
        return flags

    def _set_by_script(self, parameter: torch.Tensor) -> bool:
        """Returns True if a gradient that backward has not touched is not the zeros that were left there."""
        unit = self.unit_of.get(id(parameter))
        if isinstance(unit, Bucket) and unit.pending is None:
            index = next(i for i, member in enumerate(unit.parameters) if member is parameter)
            return not unit.holds(index) or bool(unit.view(index).any())
        return not isinstance(unit, Bucket)

    # ---- a step ----

    def synchronize(self) -> None:
        """Waits until the gradients are those of all ranks."""
        self.add_hooks()
        named = self.watched
        flags = self._flags(named)
        set_id = set_id_of(self.options.process_set)
        agreed = _hvd.allreduce_async(
            full_name("allreduce", f"{self._name()}.flags", set_id), flags, None, BOR, set_id, 1.0, 1.0, 0, None
        )  # fmt: skip
        new = [index for index, (_, parameter) in enumerate(named) if id(parameter) not in self.unit_of]
        if new:
            agreed.wait()
            # A rank that joined before its first step finds units on the others, and makes the same.
            if not any(flags[index] & _KNOWN for index in new):
                self._compare([named[index] for index in new])
            self._cut([named[index] for index in new], [flags[index] for index in new])
        self._replace_misfits()
        for unit in self.units or ():
            if unit.pending is None:
                unit.start()
        for unit in self.units or ():
            unit.finish()
        agreed.wait()
        self.touched = {id(named[index][1]) for index, seen in enumerate(flags) if seen & _TOUCHED}
        self.reset()

    def reset(self) -> None:
        """Prepares for the next backward pass."""
        self.fired = False
        self.left = dict.fromkeys(self.left, self.passes)
        for unit in self.units or ():
            unit.reset()

    @property
    def busy(self) -> bool:
        """True: a gradient is complete on this rank, and not yet that of all ranks."""
        return not all(self.left.values()) or any(unit.pending is not None for unit in self.units or ())

    def hide_unused(self, only_zeros: bool = False) -> None:
        """Takes away the gradients of parameters that no rank has used, for the optimizer's own step.

        only_zeros: the script may have set gradients since synchronize(); these stay.
        """
        for parameter in self.parameters():
            grad = parameter.grad
            if grad is None or id(parameter) not in self.unit_of or id(parameter) in self.touched:
                continue
            if only_zeros and bool((grad.coalesce().values() if grad.is_sparse else grad).any()):
                continue
            parameter.grad = None
            self.hidden.append(parameter)

    def show_unused(self) -> None:
        """Gives hidden parameters their zeros in the buckets again, after the optimizer's own step.

        A gradient that the script or the optimizer has taken away stays away: its place has the old elements.
        """
        for parameter in self.hidden:
            unit = self.unit_of.get(id(parameter))
            if unit is not None and parameter.grad is None:
                unit.keep(parameter)
        self.hidden = []

    def clear(self, set_to_none: bool) -> None:
        """Makes the gradients zero; those in buckets keep their memory."""
        if set_to_none:
            self.touched.clear()
        self._replace_misfits()
        for unit in self.units or ():
            unit.clear()
            unit.reset()
        for parameter in self.parameters():
            if isinstance(self.unit_of.get(id(parameter)), Bucket) or parameter.grad is None:
                continue
            if set_to_none:
                parameter.grad = None
            else:
                parameter.grad = torch.zeros_like(parameter.grad)

    def forget(self) -> None:
        """Gives up the units; the next synchronize() makes new ones."""
        self.units = self.prefix = None
        self.unit_of = {}
        self.reset()


class DistributedOptimizerBase:
    """What DistributedOptimizer() adds to the class of an optimizer."""

    # A copy of the object is an optimizer of this rank alone.
    _exchange: Optional[Exchange] = None
    _should_synchronize = True
    _synchronized = False
    _passes = 1

    @property
    def backward_passes_per_step(self) -> int:
        """The number of backward passes whose gradients are added on each rank before they travel."""
        return self._passes

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Sets backward_passes_per_step, between two steps."""
        self._passes = passes
        if self._exchange is not None:
            self._exchange.set_passes(passes)

    def synchronize(self) -> None:
        """Waits until the gradients are those of all ranks, for example to clip them before step().

        step() is then called within skip_synchronize(). HorovodInternalError: a rank has gone, or ranks disagree.
        """
        if self._exchange is not None:
            self._exchange.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within this context step() does not synchronize, because the script has done so."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Synchronizes the gradients, and updates the parameters. Returns what the optimizer's own step returns.

        closure: computes the loss and its gradients anew; the gradients are synchronized each time.
        """
        exchange = self._exchange
        base: Any = super()
        if exchange is None:
            return base.step(closure)
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize(), after synchronize() has reduced the "
                    "gradients: they are reduced again. Put step() into "
                    "`with optimizer.skip_synchronize():`",
                    stacklevel=2,
                )
            if closure is None or exchange.fired:
                self.synchronize()
            closure = self._synchronized_closure(closure)
        self._synchronized = False
        exchange.hide_unused(only_zeros=not self._should_synchronize)
        try:
            return base.step(closure)
        finally:
            exchange.show_unused()

    def _synchronized_closure(self, closure: Optional[Callable[[], Any]]) -> Optional[Callable[[], Any]]:
        exchange = self._exchange
        if closure is None or exchange is None:
            return closure
        original = closure
        gradients: Exchange = exchange

        def synchronized() -> Any:
            loss = original()
            if gradients.fired:
                gradients.synchronize()
                gradients.hide_unused()
            return loss

        return synchronized

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Makes the gradients zero. AssertionError: gradients are on their way between the ranks.

        set_to_none: as in torch's zero_grad. Gradients in shared memory stay there as zeros; with set_to_none the
        optimizer takes a parameter that no rank uses for one without gradient.
        """
        exchange = self._exchange
        base: Any = super()
        if exchange is not None and exchange.busy:
            raise AssertionError(
                "zero_grad() between backward() and step() would change gradients that other ranks read: "
                "call step() or synchronize() first"
            )
        if exchange is None or exchange.units is None:
            base.zero_grad(*args, **kwargs)
            return
        own = inspect.signature(base.zero_grad).parameters.get("set_to_none")
        default = own.default if own is not None else False
        exchange.clear(bool(args[0] if args else kwargs.get("set_to_none", default)))

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """Loads a state as torch does. Gradients that are on their way are waited for."""
        if self._exchange is not None:
            for unit in self._exchange.units or ():
                unit.finish()
            self._exchange.reset()
        self._synchronized = False
        self._should_synchronize = True
        super().load_state_dict(*args, **kwargs)  # type: ignore[misc]


def _checked_groups(groups: Optional[Groups], num_groups: int) -> Optional[Groups]:
    """Returns the groups of DistributedOptimizer(). ValueError: they are no number and no lists of parameters."""
    if num_groups:
        warnings.warn("num_groups is deprecated; groups=N says the same", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is None or groups == 0:
        return None
    if isinstance(groups, int):
        if groups < 0:
            raise ValueError(f"groups is a positive number, not {groups}")
        return groups
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups is a number, or a list of lists of parameters")
    members = [id(parameter) for group in groups for parameter in group]
    if not all(isinstance(parameter, torch.Tensor) for group in groups for parameter in group):
        raise ValueError("groups is a number, or a list of lists of parameters")
    if len(set(members)) < len(members):
        raise ValueError("groups has a parameter twice")
    return groups


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Optional[Iterable[Tuple[str, torch.Tensor]]] = None,
    compression: Type[Compressor] = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Optional[Groups] = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns an optimizer whose step() uses the gradients of all ranks.

    The object's class is a subclass of the optimizer's class. It shares parameters, options and state with
    `optimizer`, which is not used any more. Operations start while backward goes on.

    named_parameters: model.named_parameters(); every parameter of the optimizer must be among them.
    backward_passes_per_step: gradients of that many passes are added on each rank before they travel.
    op: Average (default), Sum or Adasum. gradient_predivide_factor: with Average, gradients are divided by it before
    the sum, and by size / factor after it. groups: a number of groups, or lists of parameters that travel as one
    operation. sparse_as_dense: sparse gradients travel as dense ones.
    ValueError: names or groups are wrong, or a factor with another op than Average. NotImplementedError: Adasum
    with a number of ranks that is no power of two.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor needs op=hvd.Average")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is 1 or more, not {backward_passes_per_step}")
    named = named_parameters_of(optimizer, named_parameters)
    groups = _checked_groups(groups, num_groups)
    takes_part = process_set.included() and process_set.size() > 1
    if op == Adasum and takes_part:
        return make_adasum_optimizer(optimizer, named, compression, backward_passes_per_step, process_set)
    wrapped = wrap(optimizer, DistributedOptimizerBase, {"_passes": backward_passes_per_step})
    if takes_part:
        options = Options(op, 1 / gradient_predivide_factor, gradient_predivide_factor, compression, process_set)
        wrapped._exchange = Exchange(named, wrapped, backward_passes_per_step, groups, sparse_as_dense, options)
    return wrapped
