"""What a conversion writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from .._files.formats import title_of


class PlannedTensor(NamedTuple):
    """source, source_dtype: the name and the type in the source; several tensors may come from one.
    name, dtype, shape, nbytes: what is written.
    """

    source: str
    source_dtype: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Plan(NamedTuple):
    """format: that of the target. tensors: in the order in which they are written.
    shards: how many files hold them, beside an index; None for one file without an index.
    """

    source: str
    target: str
    format: str
    tensors: tuple[PlannedTensor, ...]
    shards: int | None

    @property
    def title(self) -> str:
        """The name of the format, as people write it."""
        return title_of(self.format)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for JSON."""
        return {**self._asdict(), "tensors": [tensor._asdict() for tensor in self.tensors]}


def count_shards(sizes: Sequence[int], most: int) -> int:
    """How many shards the writer makes of tensors of these sizes: each takes tensors in their order while they fit, and at
    least one."""
    shards, filled, is_empty = 1, 0, True
    for size in sizes:
        if not is_empty and filled + size > most:
            shards, filled = shards + 1, 0
        filled += size
        is_empty = False
    return shards
