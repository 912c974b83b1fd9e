"""Where gradients lie, and how they travel.

The parameters of an optimizer are cut into units; each unit is one operation. There are three kinds:

    Bucket   dense gradients on the host: views into one piece of the job's shared memory, so nothing is copied.
             The memory lives as long as the last of its tensors, whatever becomes of the job
    Loose    dense gradients elsewhere (CUDA): a group of tensors, in place
    Sparse   one sparse gradient

A unit starts when backward has finished its last gradient. Small gradients share a bucket; a gradient that fills
a bucket has one for itself, since it then stays in the processor's cache.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Type, Union

import torch

from hvdrun import _hvd
from hvdrun.exceptions import OutOfMemoryError
from hvdrun.process_sets import ProcessSet, set_id_of

from .compression import BF16Compressor, Compression, Compressor, FP16Compressor
from .naming import full_name
from .operations import NO_COMPRESSION, Pending, allreduce_async_, grouped_allreduce_async_
from .sparse import sparse_allreduce_async
from .tensors import address

__all__ = ["Bucket", "Loose", "Options", "Sparse", "Unit", "cut_into_units"]

BUCKET_BYTES = 1 << 20
ALIGNMENT = 64


class Options:
    """How the gradients of one optimizer are combined."""

    def __init__(
        self, op: int, prescale: float, postscale: float, compression: Type[Compressor], process_set: ProcessSet
    ) -> None:
        self.op = op
        self.prescale = prescale
        self.postscale = postscale
        self.compression = compression
        self.process_set = process_set

    @property
    def flat(self) -> bool:
        """True: the compression treats each element alone, so a whole bucket can be compressed."""
        return self.compression in (Compression.none, FP16Compressor, BF16Compressor)


class Unit:
    """Some parameters whose gradients travel as one operation."""

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], options: Options) -> None:
        self.name = name
        self.parameters = list(parameters)
        self.options = options
        self.pending: Union[Pending, _hvd.Handle, None] = None
        self.waiting = 0
        """The number of gradients that backward has not finished."""

    def reset(self) -> None:
        """Prepares for the next step. Parameters that are frozen now are not waited for."""
        self.waiting = sum(1 for parameter in self.parameters if parameter.requires_grad)

    def fits(self) -> bool:
        """Returns False when a parameter has changed so that the unit cannot serve it any more."""
        return True

    def start(self) -> None:
        """Starts the operation. A missing gradient counts as zeros."""
        raise NotImplementedError

    def finish(self) -> None:
        """Waits for the operation. The gradients of the parameters are then those of all ranks."""
        raise NotImplementedError

    def clear(self) -> None:
        """Makes the gradients zero without giving up their memory."""

    def keep(self, parameter: torch.Tensor) -> None:
        """Gives a parameter without a gradient its place in the unit, which has zeros."""


class Bucket(Unit):
    """Gradients as views into a piece of shared memory."""

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], options: Options) -> None:
        super().__init__(name, parameters, options)
        self.dtype = self.parameters[0].dtype
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.strides = [_strides(parameter) for parameter in self.parameters]
        self.offsets, count = _layout(self.parameters)
        self.flat = shared_zeros(count, self.dtype)
        self.views = [self._make_view(index) for index in range(len(self.parameters))]
        self.addresses = [view.data_ptr() for view in self.views]
        set_id = set_id_of(options.process_set)
        self.call = (
            full_name("allreduce", name, set_id), address(self.flat), None, options.op, set_id, options.prescale,
            options.postscale, NO_COMPRESSION, self.flat,
        )  # fmt: skip
        """The arguments of the allreduce of gradients as they are."""
        self.context: Any = None
        self.small: Optional[torch.Tensor] = None

    def fits(self) -> bool:
        return all(
            parameter.dtype == self.dtype and parameter.is_cpu and parameter.shape == shape
            for parameter, shape in zip(self.parameters, self.shapes, strict=True)
        )

    def _make_view(self, index: int) -> torch.Tensor:
        return self.flat.as_strided(self.shapes[index], self.strides[index], self.offsets[index])

    def view(self, index: int) -> torch.Tensor:
        """Returns the place of a gradient in the bucket."""
        if self.views[index].data_ptr() != self.addresses[index]:
            self.views[index] = self._make_view(index)
        return self.views[index]

    def holds(self, index: int) -> bool:
        """Returns True if the gradient of a parameter lies in this bucket.

        The address decides: model.to() puts other memory into the same tensor object.
        """
        grad = self.parameters[index].grad
        if grad is self.views[index]:
            return grad.data_ptr() == self.addresses[index]
        return (
            grad is not None
            and grad.layout is torch.strided
            and grad.dtype == self.dtype
            and grad.data_ptr() == self.addresses[index]
            and grad.stride() == self.strides[index]
        )

    def _take(self, index: int) -> None:
        """Brings a gradient into the bucket that lies elsewhere."""
        parameter = self.parameters[index]
        view = self.view(index)
        with torch.no_grad():
            if parameter.grad is None:
                view.zero_()
            else:
                grad = parameter.grad.detach()
                view.copy_(grad.to_dense() if grad.is_sparse else grad)
        parameter.grad = view

    def start(self) -> None:
        for index in range(len(self.parameters)):
            if not self.holds(index):
                self._take(index)
        if self.options.compression is Compression.none:
            self.pending = _hvd.allreduce_async(*self.call)
            return
        with torch.no_grad():
            self.small, self.context = self.options.compression.compress(self.flat)
            self.pending = _start(self.small, self.name, self.options)

    def finish(self) -> None:
        if self.pending is None:
            return
        self.pending.wait()
        self.pending = None
        if self.small is not None and self.small is not self.flat:
            with torch.no_grad():
                self.flat.copy_(self.options.compression.decompress(self.small, self.context))
        self.small = self.context = None
        for index, parameter in enumerate(self.parameters):
            if not self.holds(index):  # the script has replaced it meanwhile
                parameter.grad = self.view(index)

    def clear(self) -> None:
        self.flat.zero_()
        for index, parameter in enumerate(self.parameters):
            if not self.holds(index):
                parameter.grad = self.view(index)

    def keep(self, parameter: torch.Tensor) -> None:
        parameter.grad = self.view(next(i for i, member in enumerate(self.parameters) if member is parameter))


class Loose(Unit):
    """Gradients that stay where they are."""

    def __init__(self, name: str, parameters: Sequence[torch.Tensor], options: Options) -> None:
        super().__init__(name, parameters, options)
        self.grads: List[torch.Tensor] = []
        self.pairs: List[Tuple[torch.Tensor, Any]] = []

    def start(self) -> None:
        with torch.no_grad():
            for parameter in self.parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                elif parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
            self.grads = [_grad(parameter) for parameter in self.parameters]
            self.pairs = [self.options.compression.compress(grad) for grad in self.grads]
            small = [pair[0] for pair in self.pairs]
            if len(small) == 1:
                self.pending = _start(small[0], self.name, self.options)
            else:
                self.pending = grouped_allreduce_async_(
                    small, name=self.name, op=self.options.op, prescale_factor=self.options.prescale,
                    postscale_factor=self.options.postscale, process_set=self.options.process_set,
                )  # fmt: skip

    def finish(self) -> None:
        if self.pending is None:
            return
        self.pending.wait()
        self.pending = None
        with torch.no_grad():
            for parameter, grad, (small, context) in zip(self.parameters, self.grads, self.pairs, strict=True):
                result = self.options.compression.decompress(small, context)
                if result is not grad:
                    grad.copy_(result)
                parameter.grad = grad
        self.grads, self.pairs = [], []


class Sparse(Unit):
    """One sparse gradient. A missing one counts as a tensor without elements."""

    def start(self) -> None:
        parameter = self.parameters[0]
        grad = parameter.grad
        if grad is None:
            grad = torch.zeros_like(parameter).to_sparse(1)
        elif not grad.is_sparse:
            grad = grad.to_sparse(1)
        self.pending = sparse_allreduce_async(grad, self.name, self.options.op, self.options.process_set)

    def finish(self) -> None:
        if self.pending is not None:
            self.parameters[0].grad = self.pending.wait().coalesce()
            self.pending = None


def _grad(parameter: torch.Tensor) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _start(tensor: torch.Tensor, name: str, options: Options) -> Pending:
    return allreduce_async_(
        tensor, name=name, op=options.op, prescale_factor=options.prescale, postscale_factor=options.postscale,
        process_set=options.process_set,
    )  # fmt: skip


def shared_zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    """Returns zeros in the job's shared memory; in ordinary memory if there is none left, or none is needed."""
    nbytes = count * torch.empty(0, dtype=dtype).element_size()
    if nbytes:
        try:
            return torch.frombuffer(_hvd.alloc(nbytes), dtype=dtype)
        except OutOfMemoryError:
            pass
    return torch.zeros(count, dtype=dtype)


def _strides(parameter: torch.Tensor) -> Tuple[int, ...]:
    """Returns the strides of a gradient: those of the parameter if its elements fill their memory."""
    expected = 1
    for stride, length in sorted(zip(parameter.stride(), parameter.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return torch.empty(parameter.shape, device="meta").stride()
        expected *= length
    return parameter.stride()


def _layout(parameters: Sequence[torch.Tensor]) -> Tuple[List[int], int]:
    """Returns the first element of each gradient in its bucket, and the bucket's number of elements."""
    offsets, count = [], 0
    for parameter in parameters:
        step = max(ALIGNMENT // parameter.element_size(), 1)
        offsets.append(count)
        count += -(-parameter.numel() // step) * step
    return offsets, count


def _fills(parameters: Sequence[torch.Tensor]) -> bool:
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters) >= BUCKET_BYTES


def _kind(parameter: torch.Tensor, options: Options) -> Type[Unit]:
    return Bucket if parameter.is_cpu and options.flat else Loose


def cut_into_units(
    named: Sequence[Tuple[str, torch.Tensor]], groups: Optional[Sequence[Sequence[torch.Tensor]]],
    sparse: Sequence[bool], prefix: str, options: Options,
) -> List[Unit]:  # fmt: skip
    """Returns the units of parameters, in the order in which backward is expected to finish them.

    named: the parameters with their names, in the order of the model. groups: those that belong together by the
    script's will. sparse: whether the gradient of each is sparse. All ranks call it with the same.
    """
    units: List[Unit] = []
    open_units: List[Tuple[Any, List[int]]] = []
    group_of = {id(parameter): number for number, group in enumerate(groups or ()) for parameter in group}

    def close(members: List[int], kind: Type[Unit]) -> None:
        name = named[members[0]][0] if len(members) == 1 else f"{named[members[0]][0]}+{len(members) - 1}"
        units.append(kind(f"{prefix}.{name}", [named[index][1] for index in members], options))

    for index in reversed(range(len(named))):
        parameter = named[index][1]
        if sparse[index]:
            close([index], Sparse)
            continue
        kind, group = _kind(parameter, options), group_of.get(id(parameter))
        key = (kind, group, parameter.dtype, parameter.device)
        members = next((found for other, found in open_units if other == key), None)
        if members is None:
            members = []
            open_units.append((key, members))
        members.append(index)
        full = group is None and (_fills([named[member][1] for member in members]) or not options.flat)
        if full:
            open_units.remove((key, members))
            close(members, kind)
    for key, members in open_units:
        close(members, key[0])
    return units
