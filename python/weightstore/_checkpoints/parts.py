"""Which part of a tensor a shard saves or loads.

A DTensor is spread over the ranks of its mesh: each has a part of it, a box of indices. A part is a tensor of this process and
its place in the whole.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import errors

if TYPE_CHECKING:
    import torch
    from torch.distributed.tensor import DTensor

Place = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What a process has of a tensor.

    values: a tensor in the memory of this process, never a DTensor.
    whole: the shape of the whole tensor.
    begin: the first index of the part, in every dimension."""

    values: torch.Tensor
    whole: tuple[int, ...]
    begin: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return tuple(self.values.shape) == self.whole

    @property
    def is_empty(self) -> bool:
        """Whether the part has no elements though the whole has."""
        return 0 in self.values.shape and 0 not in self.whole


def as_dtensor(tensor: torch.Tensor) -> DTensor | None:
    """The tensor, if it is a DTensor."""
    # Whoever has a DTensor has imported its module, which takes half a second.
    module: Any = sys.modules.get("torch.distributed.tensor")
    return tensor if module is not None and isinstance(tensor, module.DTensor) else None


def whole_part(tensor: torch.Tensor) -> Part:
    """All of a plain tensor."""
    shape = () if tensor.is_nested else tuple(tensor.shape)  # the shape of a nested tensor is an error of its own
    return Part(tensor, shape, (0,) * len(shape))


def own_part(name: str, tensor: torch.Tensor) -> Part | None:
    """The part of a tensor that this process has: all of a plain tensor. None if the process is not in the mesh of a DTensor.
    Raises InvalidArgument for a DTensor whose values are not final."""
    distributed = as_dtensor(tensor)
    if distributed is None:
        return whole_part(tensor)
    import torch
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    spec = distributed._spec
    if any(placement.is_partial() for placement in spec.placements):
        text = f"is a DTensor of which the ranks have partial sums ({spec.placements}); redistribute() it first"
        raise errors.make("invalid_argument", text, tensor=name, format="checkpoint")
    if spec.mesh.get_coordinate() is None:
        return None
    with torch.no_grad():
        values = distributed.to_local().detach()
    if hasattr(values, "wait"):  # the result of a collective that may still run
        values = values.wait()
    size, begin = compute_local_shape_and_global_offset(distributed.shape, spec.mesh, spec.placements)
    if tuple(values.shape) != tuple(size):
        text = f"is a DTensor of the shape {list(distributed.shape)} whose part here has the shape {list(values.shape)}, not {size}"
        raise errors.make("invalid_argument", text, tensor=name, format="checkpoint")
    # An empty part may begin anywhere.
    begin = tuple(min(first, count) for first, count in zip(begin, distributed.shape, strict=True))
    return Part(values, tuple(distributed.shape), begin)


def of_first_shard(shard_index: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, Part]:
    """What a shard saves by the usual rule: shard 0 saves all plain tensors; each part of a DTensor is saved by the first rank of
    its mesh that has it."""
    parts = {}
    for name, tensor in tensors.items():
        distributed = as_dtensor(tensor)
        part = own_part(name, tensor)
        if distributed is None:
            saves = shard_index == 0
        else:
            saves = part is not None and not part.is_empty and _is_first_replica(distributed)
        if saves and part is not None:
            parts[name] = part
    return parts


def _is_first_replica(tensor: DTensor) -> bool:
    """Whether no rank before this one has the same part."""
    spec = tensor._spec
    coordinate = spec.mesh.get_coordinate()
    if coordinate is None:
        return False
    # Of a tensor without elements every rank has everything.
    everywhere = 0 in tensor.shape
    pairs = zip(spec.placements, coordinate, strict=True)
    return all(at == 0 for placement, at in pairs if everywhere or placement.is_replicate())


def to_load(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, Place]]:
    """The memory that a load fills, by name, and the places of what is only a part."""
    import torch

    memory = {}
    places = {}
    for name, tensor in tensors.items():
        part = own_part(name, tensor)
        if as_dtensor(tensor) is None:
            memory[name] = tensor
            continue
        if part is None:
            # Not in its mesh: nothing is read, but the checkpoint must have the tensor.
            whole = tuple(tensor.shape)
            part = Part(torch.empty((0,) * len(whole), dtype=tensor.dtype), whole, (0,) * len(whole))
        memory[name] = part.values
        if not part.is_whole:
            places[name] = (part.whole, part.begin)
    return memory, places


def by_kind(parts: Mapping[str, Part]) -> tuple[dict[str, torch.Tensor], dict[str, list[int]], dict[str, list[int]]]:
    """Values, whole shapes and begins, as torch.classes.store takes them."""
    return (
        {name: part.values for name, part in parts.items()},
        {name: list(part.whole) for name, part in parts.items()},
        {name: list(part.begin) for name, part in parts.items()},
    )


def changed(tensors: Iterable[torch.Tensor]) -> None:
    """Tells autograd that the values of DTensors were changed through the memory of their parts."""
    import torch

    for tensor in tensors:
        if as_dtensor(tensor) is not None and not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
