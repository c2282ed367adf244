"""What a restore returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Restored(Mapping[str, Any]):
    """A step that was restored: its state by name. What was restored in place is there, too. Everything else is read when it is
    asked for: `restored["epoch"]`. The files stay open, also if the step is removed meanwhile.

    step: its number. metrics: those that it was saved with. world_size: the number of ranks that saved it.
    """

    def __init__(
        self,
        step: int,
        metrics: Mapping[str, float],
        world_size: int,
        there: Mapping[str, Any],
        names: Mapping[str, Callable[[], Any]],
        of_ranks: Callable[[str], list[Any]],
    ) -> None:
        self.step = step
        self.metrics = dict(metrics)
        self.world_size = world_size
        self._there = dict(there)
        self._names = dict(names)
        self._of_ranks = of_ranks

    def __repr__(self) -> str:
        return f"<Restored step {self.step}: {', '.join(self._names)}>"

    def __getitem__(self, name: str) -> Any:
        if name not in self._there:
            self._there[name] = self._names[name]()
        return self._there[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def of_ranks(self, name: str) -> list[Any]:
        """What each of the ranks saved of a `PerRank` entry, for a run that goes on with another number of ranks."""
        return self._of_ranks(name)
