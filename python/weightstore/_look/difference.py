"""How two files differ: tensors that only one has, other shapes, other types, other values.

    with weightstore.open("a.safetensors") as a, weightstore.open("b.bpk") as b:
        found = difference(a, b, values=True)
        found.is_same                              # True: same names, types, shapes and values

The formats and the shards of the files do not matter.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from .._files.file import File, source_of
from .._files.progress import Progress, reporting


class ValueDifference(NamedTuple):
    """count: numbers that were compared. differing: of these, those that are not equal; NaN equals NaN, and -0 equals 0.
    unmeasured: differing pairs with a NaN or an infinity, which have no distance.
    max_absolute: the largest |a - b|. max_relative: the largest |a - b| / max(|a|, |b|).
    """

    count: int  # type: ignore[assignment]  # which hides tuple.count()
    differing: int
    unmeasured: int
    max_absolute: float
    max_relative: float


class Changed(NamedTuple):
    """A tensor that both files have and that is not the same in both.

    dtypes, shapes: of the first and of the second file.
    values: how far the values are apart. None if they were not compared: because that was not asked for, because the tensors
        have different numbers of elements, or because a type has no numbers (F6, and types of GGUF that are only carried).
    """

    name: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    values: ValueDifference | None

    @property
    def has_other_dtype(self) -> bool:
        """Whether the element types differ."""
        return self.dtypes[0] != self.dtypes[1]

    @property
    def has_other_shape(self) -> bool:
        """Whether the shapes differ."""
        return self.shapes[0] != self.shapes[1]


class Difference(NamedTuple):
    """missing: tensors that only the first file has. extra: tensors that only the second file has. Both sorted.
    changed: tensors with another type, another shape or, if values were compared, other values; sorted by name.
    same: how many tensors are the same.
    compared_values: whether values were compared.
    """

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[Changed, ...]
    same: int
    compared_values: bool

    @property
    def is_same(self) -> bool:
        """Whether both files hold the same, as far as it was compared."""
        return not (self.missing or self.extra or self.changed)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for JSON."""
        return {
            "same": self.is_same,
            "missing": list(self.missing),
            "extra": list(self.extra),
            "changed": [
                {
                    "name": one.name,
                    "dtypes": list(one.dtypes),
                    "shapes": [list(shape) for shape in one.shapes],
                    "values": None if one.values is None else one.values._asdict(),
                }
                for one in self.changed
            ],
            "unchanged": self.same,
            "compared_values": self.compared_values,
        }


def difference(
    a: File, b: File, *, values: bool = False, threads: int = 0, progress: Progress | bool | None = None
) -> Difference:
    """Compares what two open files hold. Reads headers only, unless `values` is given: then all tensors that both have are read
    once, in blocks, on all cores. Values are compared as numbers, so tensors of different types can be equal.
    """
    readers = source_of(a).reader, source_of(b).reader
    names = a.keys(), b.keys()
    mine, theirs = set(names[0]), set(names[1])
    common = [name for name in names[0] if name in theirs]
    described = [
        {name: (dtype, shape) for name, dtype, shape, _ in reader.describe_many([reader.at(n) for n in common])}
        for reader in readers
    ]
    compared: dict[str, ValueDifference | None] = {}
    if values:
        pairs = [(readers[0].at(name), readers[1].at(name)) for name in common]
        with reporting(progress) as report:
            found = _core.compare_values(*readers, pairs, threads=threads, progress=report)
        compared = {
            name: None if one is None else ValueDifference(*one) for name, one in zip(common, found, strict=True)
        }
    changed = []
    for name in common:
        (dtype, shape), (other_dtype, other_shape) = described[0][name], described[1][name]
        one = compared.get(name)
        if dtype != other_dtype or shape != other_shape or (one is not None and one.differing):
            changed.append(Changed(name, (dtype, other_dtype), (shape, other_shape), one))
    return Difference(
        missing=tuple(name for name in names[0] if name not in theirs),
        extra=tuple(name for name in names[1] if name not in mine),
        changed=tuple(changed),
        same=len(common) - len(changed),
        compared_values=values,
    )
