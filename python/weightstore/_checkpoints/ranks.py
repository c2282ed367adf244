"""The ranks of a process group that save together: what they tell each other, and how they fail together. Knows nothing of files."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from .. import errors

T = TypeVar("T")

_TIMEOUT = 1800  # seconds, as torch's collectives wait


class Ranks(Protocol):
    """The same calls are made on all ranks, in the same order."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def gather(self, value: Any, for_others: Callable[[list[Any]], list[Any]] = ...) -> list[Any]:
        """The values of all ranks, by rank. for_others: what ranks other than 0 get of them."""
        ...

    def lend(self) -> Ranks:
        """The same ranks for one other thread, which calls give_back() when it needs them no more."""
        ...

    def give_back(self) -> None: ...


class Alone:
    """A process without others."""

    rank = 0
    size = 1

    def gather(self, value: Any, for_others: Callable[[list[Any]], list[Any]] = lambda told: told) -> list[Any]:
        return [value]

    def lend(self) -> Ranks:
        return self

    def give_back(self) -> None:
        pass


class Group:
    """The ranks of a process group of torch.distributed. They talk through the store in which the group found itself: that works beside
    collectives, on any thread and with any backend, and says who does not answer."""

    def __init__(self, store: Any, name: str, rank: int, size: int) -> None:
        # A connection of its own: one that waits keeps others from using it.
        self._store = store.clone() if hasattr(store, "clone") else store
        self._base = store
        self._name = name
        self.rank = rank
        self.size = size
        self._count = 0
        self._lent: list[Group] = []
        self._is_free = True

    def gather(self, value: Any, for_others: Callable[[list[Any]], list[Any]] = lambda told: told) -> list[Any]:
        self._count += 1
        key, before = (f"{self._name}/{count}" for count in (self._count, self._count - 1))
        if self.rank != 0:
            self._store.set(f"{key}/{self.rank}", pickle.dumps(value))
            answer: list[Any] = pickle.loads(self._get(f"{key}/all", 0))
            return answer
        told = [value, *(pickle.loads(self._get(f"{key}/{rank}", rank)) for rank in range(1, self.size))]
        self._store.set(f"{key}/all", pickle.dumps(for_others(told)))
        # Whoever has told something has read the answer before.
        for old in (*(f"{key}/{rank}" for rank in range(1, self.size)), f"{before}/all"):
            self._store.delete_key(old)
        return told

    def _get(self, key: str, rank: int) -> bytes:
        try:
            self._store.wait([key], timedelta(seconds=_TIMEOUT))
        except Exception as error:
            text = f"rank {rank} has not answered for {_TIMEOUT} seconds, or has ended: {error}"
            raise errors.make("io", text, format="checkpoint") from None
        found: bytes = self._store.get(key)
        return found

    def lend(self) -> Ranks:
        # A thread of one rank may have ended, and that of another not yet.
        free = self.gather([number for number, each in enumerate(self._lent) if each._is_free])
        common = set(free[0]).intersection(*free)
        if not common:
            self._lent.append(Group(self._base, f"{self._name}.{len(self._lent)}", self.rank, self.size))
        lent = self._lent[min(common, default=-1)]
        lent._is_free = False
        return lent

    def give_back(self) -> None:
        self._is_free = True


# By the ids of process groups, which the values keep alive: all ranks go on counting what they have told each other.
_known: dict[int, tuple[Any, Group]] = {}


def ranks_of(group: Any = None) -> Ranks:
    """The ranks of a group, or of the default one. A process without an initialised torch.distributed, or alone in it, is alone."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size(group) == 1:
        return Alone()
    key: Any = dist.group.WORLD if group is None else group
    if id(key) not in _known:
        store = dist.distributed_c10d._get_process_group_store(key)
        _known[id(key)] = (key, Group(store, "weightstore", dist.get_rank(key), dist.get_world_size(key)))
    return _known[id(key)][1]


def together(ranks: Ranks, work: Callable[[], T], *, for_first: bool = False) -> list[T]:
    """Does something on every rank, and returns the results of all. If a rank fails, all ranks raise the same error, which names
    that rank. for_first: only rank 0 needs the results; the others get None."""
    result, problem = None, None
    try:
        result = work()
    except BaseException as error:
        problem = error
    if ranks.size == 1:
        if problem is not None:
            raise problem
        return [result]  # type: ignore[list-item]
    own = (result, None if problem is None else portable(problem))
    told = ranks.gather(
        own, (lambda told: [(None, failure) for _, failure in told]) if for_first else lambda told: told
    )
    failed = [(rank, failure) for rank, (_, failure) in enumerate(told) if failure is not None]
    if problem is not None and not isinstance(problem, Exception):
        raise problem  # Ctrl-C, or the end of the program
    if failed:
        # Rank 0 may have failed because another one did.
        rank, failure = next((each for each in failed if each[0] != 0), failed[0])
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
