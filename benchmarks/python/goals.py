"""What weightstore has to show, as checks on one task's results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.python.results import Results


@dataclass(frozen=True)
class Verdict:
    goal: str
    measured: str
    reached: bool | None  # None: nothing to compare with


class Goal(Protocol):
    def check(self, who: str, results: Results) -> Verdict: ...


@dataclass(frozen=True)
class FasterThanBestPeer:
    factor: float

    def check(self, who: str, results: Results) -> Verdict:
        goal = f"{self.factor:g} x the best peer"
        peer = results.best_peer()
        if peer is None:
            return Verdict(goal, "no peer was measured", None)
        ratio = peer.seconds / results[who].seconds
        return Verdict(goal, f"{ratio:.2f} x {peer.who}", ratio >= self.factor)


@dataclass(frozen=True)
class FasterThan:
    other: str
    factor: float

    def check(self, who: str, results: Results) -> Verdict:
        goal = f"{self.factor:.2g} x {self.other}"
        if self.other not in results:
            return Verdict(goal, f"{self.other} was not measured", None)
        ratio = results[self.other].seconds / results[who].seconds
        return Verdict(goal, f"{ratio:.2f} x", ratio >= self.factor)


@dataclass(frozen=True)
class ShareOfLimit:
    """Of the best limit, or of the one that is named."""

    share: float
    limit: str | None = None

    def check(self, who: str, results: Results) -> Verdict:
        goal = f"{self.share:.0%} of {self.limit or 'the limit'}"
        limit = results.get(self.limit) if self.limit else results.best_limit()
        if limit is None:
            return Verdict(goal, "the limit was not measured", None)
        share = limit.seconds / results[who].seconds
        return Verdict(goal, f"{share:.0%}", share >= self.share)


@dataclass(frozen=True)
class Either:
    one: Goal
    other: Goal

    def check(self, who: str, results: Results) -> Verdict:
        verdicts = [goal.check(who, results) for goal in (self.one, self.other)]
        known = [verdict.reached for verdict in verdicts if verdict.reached is not None]
        return Verdict(
            " or ".join(verdict.goal for verdict in verdicts),
            " and ".join(verdict.measured for verdict in verdicts),
            any(known) if known else None,
        )


@dataclass(frozen=True)
class MemoryBelow:
    megabytes: float

    def check(self, who: str, results: Results) -> Verdict:
        used = results[who].extra_bytes / 1e6
        return Verdict(f"below {self.megabytes:g} MB extra", f"{used:.1f} MB", used < self.megabytes)


@dataclass(frozen=True)
class MemoryBelowOneTensor:
    def check(self, who: str, results: Results) -> Verdict:
        result = results[who]
        used = result.extra_bytes / 1e6
        goal = f"at most the largest tensor extra, {result.largest_bytes / 1e6:.1f} MB"
        return Verdict(goal, f"{used:.1f} MB", result.extra_bytes <= result.largest_bytes)


@dataclass(frozen=True)
class MemoryPerHeaderByte:
    factor: float

    def check(self, who: str, results: Results) -> Verdict:
        result = results[who]
        used = result.extra_bytes / result.header_bytes
        return Verdict(f"at most {self.factor:g} bytes a header byte", f"{used:.1f}", used <= self.factor)
