"""How a weight is made of tensors of a pager."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch

from .._modules.apply.plan import Assignment
from .._modules.values.changed import Changed, Joined
from .._modules.values.original import FileTensor, Loaded, Values
from .._pager import PagedTensor


def file_tensors(values: Values) -> list[FileTensor]:
    """The tensors of a file that values are made of; none when they are made in a way of their own."""
    if isinstance(values, FileTensor):
        return [values]
    if isinstance(values, Changed):
        return file_tensors(values.original)
    return [found for part in values.parts for found in file_tensors(part)] if isinstance(values, Joined) else []


class Weight:
    """A parameter of one or more names, and what its values are made of.

    slots: of the pager. Empty when an adapter makes the values by a function of its own; they are then read by the store.
    copied_bytes: the memory that the values need beside the pager's: 0 when they are shown where the pager has them.
    """

    def __init__(self, name: str, assignment: Assignment, like: torch.Tensor) -> None:
        self.name = name
        self._values = assignment.snapshot._values
        self._whole = isinstance(self._values, FileTensor)
        self.slots = [found.number for found in file_tensors(self._values)]
        self.stored_bytes = sum(found.nbytes for found in file_tensors(self._values))
        self._shape = like.shape
        self.dtype = _dtype_of(self._values) if assignment.adopts else like.dtype
        self._casts = assignment.converts
        self.copied_bytes = 0 if self._whole and not self._casts else like.numel() * self.dtype.itemsize
        if self._casts and not self._whole:
            self.copied_bytes += self._values.nbytes

    @property
    def is_cast(self) -> bool:
        return self._casts

    def tensor(self, handles: dict[int, PagedTensor]) -> torch.Tensor:
        """The values, from handles by slot. They are a view of the pager's memory where nothing has to be changed."""
        made = handles[self.slots[0]].torch() if self._whole else _over(self._values, handles).torch(own=True)
        return (made.to(self.dtype) if self._casts else made).view(self._shape)


def _dtype_of(values: Values) -> torch.dtype:
    from .._tensors import dtypes

    found: torch.dtype = dtypes.torch_dtype(values.dtype)
    return found


def _over(values: Values, handles: dict[int, PagedTensor]) -> Values:
    """The same values, read from memory of the pager in place of the file."""
    if isinstance(values, FileTensor):
        return Loaded(values, memoryview(handles[values.number].memory(False)))  # type: ignore[arg-type]
    made: Any = copy(values)
    if isinstance(values, Changed):
        made.original = _over(values.original, handles)
    elif isinstance(values, Joined):
        made.parts = [_over(part, handles) for part in values.parts]
    return made  # type: ignore[no-any-return]
