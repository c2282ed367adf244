"""Which steps stay."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from .. import errors

BestMode = Literal["min", "max"]


def check_options(max_to_keep: int | None, keep_every: int | None, best: str | None, best_mode: str) -> None:
    for name, value in (("max_to_keep", max_to_keep), ("keep_every", keep_every)):
        if value is not None and (type(value) is not int or value < 1):
            raise errors.make("invalid_argument", f"{name} is {value!r}; it is a number from 1 on, or None")
    if best is not None and not isinstance(best, str):
        raise TypeError(f"best is the name of a metric, not {errors.typed(best)}")
    if best_mode not in ("min", "max"):
        raise errors.make("invalid_argument", f"best_mode is {best_mode!r}; it is 'min' or 'max'")


def best_of(values: Mapping[int, float | None], mode: BestMode) -> int | None:
    """The step with the best value, of equal ones the newest. None and NaN are never the best."""
    sign = 1.0 if mode == "max" else -1.0
    known = [(sign * value, step) for step, value in values.items() if value is not None and not math.isnan(value)]
    return max(known)[1] if known else None


def to_remove(steps: Sequence[int], max_to_keep: int | None, keep_every: int | None, best: int | None) -> list[int]:
    """steps: those that are complete, in order. The newest one stays always."""
    if max_to_keep is None:
        return []
    return [
        step
        for step in steps[:-max_to_keep]
        if step != best and not (keep_every is not None and step % keep_every == 0)
    ]
