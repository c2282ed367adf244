"""Which rank of a process group saves which tensor. All ranks compute it from the same numbers, and get the same result."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from . import parts
from .parts import Part
from .ranks import Ranks, together

if TYPE_CHECKING:
    import torch

# A smaller tensor is not cut, whatever the ranks have to do.
_LEAST_TO_CUT = 1 << 24


class _Described(NamedTuple):
    """What a rank tells the others about its tensors: a digest of names, types and shapes, and the bytes of its parts of
    DTensors."""

    digest: bytes
    bytes_of_parts: int


def spread(ranks: Ranks, tensors: Mapping[str, torch.Tensor]) -> dict[str, Part]:
    """What of its tensors this rank saves. The ranks have tensors of the same names, types and shapes: otherwise all of them raise
    InvalidArgument. Plain tensors have the same values on all ranks, and are spread by bytes. Each part of a DTensor is saved by the
    first rank that has it."""
    plain = {name: tensor for name, tensor in tensors.items() if parts.as_dtensor(tensor) is None}

    own: dict[str, Part] = {}

    def describe() -> _Described:
        own.update(parts.of_first_shard(1, tensors))  # of a shard that is not the first: no plain tensors
        return _Described(_digest(_lines(tensors)), sum(part.values.nbytes for part in own.values()))

    told = together(ranks, describe)
    if len({each.digest for each in told}) > 1:
        _refuse(ranks.gather(list(_lines(tensors))))
    sizes = {name: (tensor.nbytes, tensor.shape[0] if tensor.dim() else 1) for name, tensor in plain.items()}
    for name, rows in _rows_of(ranks.rank, sizes, [each.bytes_of_parts for each in told]).items():
        shape = tuple(plain[name].shape)
        begin = (rows[0], *(0,) * (len(shape) - 1)) if shape else ()
        values = plain[name] if not shape else plain[name][rows[0] : rows[1]]
        own[name] = Part(values.detach(), shape, begin)
    return own


def _lines(tensors: Mapping[str, torch.Tensor]) -> Iterable[str]:
    for name, tensor in tensors.items():
        kind = "" if parts.as_dtensor(tensor) is None else " (a DTensor)"
        yield f"'{name}' {str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}{kind}"


def _digest(lines: Iterable[str]) -> bytes:
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
    return digest.digest()


def _refuse(told: Sequence[Sequence[str]]) -> None:
    """Raises an error that names the first rank that differs from rank 0, and in what."""
    first = told[0]
    rank, other = next((rank, lines) for rank, lines in enumerate(told) if list(lines) != list(first))
    absent, extra = (
        [line for line in first if line not in set(other)],
        [line for line in other if line not in set(first)],
    )
    shown = [f"rank 0 has {line}" for line in absent[:5]] + [f"rank {rank} has {line}" for line in extra[:5]]
    text = "; ".join(shown) or "they have the same tensors in another order"
    raise errors.make("invalid_argument", f"ranks 0 and {rank} have different tensors: {text}", format="checkpoint")


def _rows_of(rank: int, sizes: Mapping[str, tuple[int, int]], busy: Sequence[int]) -> dict[str, tuple[int, int]]:
    """The tensors, and of each the rows, that a rank saves. sizes: bytes and rows by name. busy: bytes that each rank saves anyway.

    The largest tensors come first, and go to the rank with the least to do. A tensor that is more than the share of a rank is cut
    into rows, one piece for each rank."""
    count = len(busy)
    load = list(busy)
    share = (sum(load) + sum(nbytes for nbytes, _ in sizes.values())) / count
    mine: dict[str, tuple[int, int]] = {}
    for name, (nbytes, rows) in sorted(sizes.items(), key=lambda item: (-item[1][0], item[0])):
        if count > 1 and nbytes > max(share, _LEAST_TO_CUT) and rows >= count:
            for each in range(count):
                begin, end = rows * each // count, rows * (each + 1) // count
                load[each] += nbytes * (end - begin) // rows
                if each == rank:
                    mine[name] = (begin, end)
            continue
        chosen = min(range(count), key=lambda each: (load[each], each))
        load[chosen] += nbytes
        if chosen == rank:
            mine[name] = (0, rows)
    return mine
