"""What the numbers of tensors are: range, mean, standard deviation, NaNs, infinities, zeros, and a histogram.

    with weightstore.open("model.safetensors") as file:
        found = statistics(file, bins=32)          # of all tensors, on all cores, streamed
        found["layers.0.weight"].mean

A tensor of a type that has no numbers (F6, and types of GGUF that are only carried) is in the result as None.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any, NamedTuple

from .. import _core
from .._files.file import File, source_of
from .._files.progress import Progress, reporting


class Statistics(NamedTuple):
    """The numbers of a tensor. A complex element is two numbers, a bool is 0 or 1, a quantized tensor is the numbers that it
    stands for.

    count: all numbers. nans, infinities, zeros: how many of them are that.
    min, max, mean, std: of the finite numbers; NaN when there are none. std is that of the population, as `numpy.std`. min and max
        of 64-bit integers are int and exact.
    histogram: how many of the finite numbers are in each bin; the bins have the same width and go from min to max. Empty when it
        was not asked for.
    """

    count: int  # type: ignore[assignment]  # which hides tuple.count()
    nans: int
    infinities: int
    zeros: int
    min: float | int
    max: float | int
    mean: float
    std: float
    histogram: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for JSON, which has no NaN and gets None."""
        return {
            name: (None if isinstance(value, float) and not isfinite(value) else value)
            for name, value in self._asdict().items()
        } | {"histogram": list(self.histogram)}


def statistics(
    file: File,
    names: Iterable[str] | None = None,
    *,
    bins: int = 0,
    threads: int = 0,
    progress: Progress | bool | None = None,
) -> dict[str, Statistics | None]:
    """The statistics of tensors by name; of all tensors if `names` is None. Reads each tensor once, or twice for a histogram, in
    blocks: memory does not depend on the size of the tensors, except for quantized tensors of a file that is not mapped.

    bins: of the histogram; 0 for none.
    threads: 0 for one a processor.
    """
    reader = source_of(file).reader
    numbers = reader.numbers() if names is None else [reader.at(name) for name in names]
    with reporting(progress) as report:
        found = _core.statistics(reader, numbers, bins=bins, threads=threads, progress=report)
    keys = [name for name, *_ in reader.describe_many(numbers)]
    return {
        name: None if one is None else Statistics(*one[:-1], tuple(one[-1]))
        for name, one in zip(keys, found, strict=True)
    }
