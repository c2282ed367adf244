"""Which tensors a pager keeps in memory: the values of `policy=`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from . import errors


class Schedule:
    """The order in which tensors are used again and again. Made by schedule()."""

    __slots__ = ("ids",)

    def __init__(self, ids: Iterable[Any]) -> None:
        if isinstance(ids, str):
            raise TypeError(f"schedule() takes a list of tensors; write [{ids!r}] for one")
        self.ids = tuple(ids)
        if not self.ids:
            raise errors.make("invalid_argument", "a schedule has at least one tensor", format="pager")

    def __repr__(self) -> str:
        return f"<Schedule of {len(self.ids)} acquires>"


Policy = Literal["lru", "cyclic"] | Schedule


def schedule(ids: Iterable[Any]) -> Schedule:
    """A policy for a pager whose tensors are used in this order, again and again. A tensor may occur several times."""
    return Schedule(ids)


def kind_of_policy(policy: Policy) -> str:
    if isinstance(policy, Schedule):
        return "schedule"
    if policy not in ("lru", "cyclic"):
        raise errors.make(
            "invalid_argument", f"policy is {policy!r}; it is 'lru', 'cyclic' or schedule([...])", format="pager"
        )
    return policy


def order_of(policy: Policy) -> tuple[Any, ...]:
    return policy.ids if isinstance(policy, Schedule) else ()
