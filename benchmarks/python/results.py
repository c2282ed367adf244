"""Samples of one task, gathered by contestant."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.python.contestants import CONTESTANTS, Kind


@dataclass
class Result:
    """The best time and the worst memory of a contestant's samples."""

    who: str
    payload_bytes: int = 0
    header_bytes: int = 0
    largest_bytes: int = 0  # of one tensor
    samples: list[float] = field(default_factory=list)
    extra_bytes: int = 0

    @property
    def kind(self) -> Kind:
        return CONTESTANTS[self.who].kind

    @property
    def seconds(self) -> float:
        return min(self.samples)


class Results(dict[str, Result]):
    """By contestant, in the order they ran; contestants without a sample are in `skipped`."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: dict[str, str] = {}

    def best_peer(self) -> Result | None:
        return self._best(Kind.PEER)

    def best_limit(self) -> Result | None:
        return self._best(Kind.LIMIT)

    def _best(self, kind: Kind) -> Result | None:
        found = [result for result in self.values() if result.kind == kind]
        return min(found, key=lambda result: result.seconds, default=None)
