"""What a task is: an operation, on a model, by contestants, with goals."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from benchmarks.python.goals import Goal
from benchmarks.python.model import DECODER, Model


class Operation(enum.Enum):
    LIST = "list"
    READ_ONE = "read_one"
    SAVE = "save"
    SAVE_DURABLE = "save_durable"
    LOAD = "load"
    LOAD_COLD = "load_cold"
    LOAD_INTO = "load_into"
    TRANSPOSE = "transpose"
    CAST_F16 = "cast_f16"
    CAST_BF16 = "cast_bf16"


@dataclass(frozen=True)
class Task:
    name: str
    title: str
    operation: Operation
    contestants: tuple[str, ...]
    goals: dict[str, tuple[Goal, ...]] = field(default_factory=dict)  # by contestant
    model: Model = DECODER

    def restricted(self, names: list[str] | None) -> Task:
        """With the contestants whose name contains one of `names`."""
        if not names:
            return self
        chosen = tuple(who for who in self.contestants if any(name in who for name in names))
        return replace(self, contestants=chosen)
