"""The ranks of a process group that save together: what they tell each other, and how they fail together. Knows nothing of files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .. import errors

T = TypeVar("T")


class Ranks(Protocol):
    """The same calls are made on all ranks, in the same order."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks."""
        ...


class Alone:
    """A process without others."""

    rank = 0
    size = 1

    def gather(self, value: Any) -> list[Any]:
        return [value]


class Group:
    """The ranks of a process group of torch.distributed, with a channel of their own: other collectives, also on other threads, do
    not come in between. Made on all ranks at the same time."""

    def __init__(self, group: Any = None) -> None:
        import torch.distributed as dist

        members = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
        # gloo, whatever the group of the caller has: what is told is not on a GPU.
        self._channel = dist.new_group(members, backend="gloo", use_local_synchronization=True)
        self.rank: int = dist.get_rank(self._channel)
        self.size: int = len(members)

    def gather(self, value: Any) -> list[Any]:
        import torch.distributed as dist

        told: list[Any] = [None] * self.size
        dist.all_gather_object(told, value, group=self._channel)
        return told


def ranks_of(group: Any = None) -> Ranks:
    """The ranks of a group, or of the default one. A process without an initialised torch.distributed, or alone in it, is alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return Alone()
    return Group(group)


def together(ranks: Ranks, work: Callable[[], T]) -> list[T]:
    """Does something on every rank, and returns the results of all. If a rank fails, all ranks raise the same error, which names
    that rank."""
    result, problem = None, None
    try:
        result = work()
    except BaseException as error:
        problem = error
    if ranks.size == 1:
        if problem is not None:
            raise problem
        return [result]  # type: ignore[list-item]
    told = ranks.gather((result, None if problem is None else portable(problem)))
    failed = [(rank, failure) for rank, (_, failure) in enumerate(told) if failure is not None]
    if problem is not None and not isinstance(problem, Exception):
        raise problem  # Ctrl-C, or the end of the program
    if failed:
        rank, failure = failed[0]
        raise named(failure, rank) from problem
    return [each for each, _ in told]


def portable(error: BaseException) -> errors.StoreError:
    """An error that can be sent to other ranks."""
    if isinstance(error, errors.StoreError):
        return error
    return errors.make("conflict", f"{type(error).__name__}: {error}", format="checkpoint")


def named(error: errors.StoreError, rank: int) -> errors.StoreError:
    """The error of a rank, with the rank in its text."""
    error._text = f"rank {rank} failed: {error}"
    return error
