"""Which tensors the ranks of one machine write together, through shared memory. box_exchange.h in C++ says how.

A matrix that is sharded by columns leaves every rank with short runs of a file. If the ranks of a machine together have whole rows
of it, they put the runs together in memory and write blocks.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .. import _core, errors
from .sharing import Place

BLOCK = _core.BoxExchange.BLOCK_BYTES
#: Longer runs are written by the rank that has them.
_LONG_RUN = 1 << 20

Numbers = tuple[int, ...]
#: (first block, begin, end): these bytes of a tensor are blocks of an exchange
Range = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the members must know.

    memory: the process and the descriptor of the memory that they share.
    members: rank and process of each."""

    memory: tuple[int, int]
    members: tuple[tuple[int, int], ...]
    blocks: int


@dataclass(slots=True)
class Machine:
    """The ranks of a machine that can share memory, and what they write together."""

    boxes: dict[str, list[tuple[int, Numbers, Numbers]]] = field(default_factory=dict)  # rank, begin and size
    ranges: dict[str, Range] = field(default_factory=dict)
    exchange: Exchange | None = None


class ExchangePlan:
    """Made on the coordinator. `add` each box of the tensors, then `finish`, then ask for each rank."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._machines: dict[tuple[str, int, int], Machine] = {}
        self._narrow: dict[tuple[Numbers, Numbers, int], bool] = {}
        self._added: set[tuple[int, str, Numbers]] = set()  # rank, name and begin of the boxes of `boxes`

    def add(self, rank: int, name: str, shape: Numbers, begin: Numbers, size: Numbers, item_bytes: int) -> None:
        place = self._places[rank]
        if place.memory < 0:
            return
        key = (shape, size, item_bytes)
        narrow = self._narrow.get(key)
        if narrow is None:
            narrow = self._narrow[key] = _is_narrow(shape, size, item_bytes)
        if narrow:
            machine = self._machines.setdefault((place.host, place.namespace, place.user), Machine())
            machine.boxes.setdefault(name, []).append((rank, begin, size))
            self._added.add((rank, name, begin))

    def finish(self, tensors: Mapping[str, tuple[int, Numbers, int]]) -> None:
        """tensors: in the order of the files: where each begins in its file, its shape, and the size of its elements."""
        for machine in self._machines.values():
            blocks = 0
            members: set[int] = set()
            for name, (at, shape, item_bytes) in tensors.items():
                found = _common_range(machine.boxes.get(name, []), shape, item_bytes)
                if found is None:
                    continue
                begin, end = found
                machine.ranges[name] = (blocks, begin, end)
                blocks += (at + end - 1) // BLOCK - (at + begin) // BLOCK + 1
                members.update(rank for rank, _, _ in machine.boxes[name])
            machine.boxes.clear()
            if members:
                known = [(rank, self._places[rank]) for rank in sorted(members)]
                memory = (known[0][1].process, known[0][1].memory)
                machine.exchange = Exchange(memory, tuple((rank, place.process) for rank, place in known), blocks)

    def has(self, rank: int, name: str, begin: Numbers) -> bool:
        """Whether a box may be in an exchange. Others, which are one run, are written by the rank that has them."""
        return (rank, name, begin) in self._added

    def of(self, rank: int) -> tuple[Exchange | None, Mapping[str, Range]]:
        place = self._places[rank]
        machine = self._machines.get((place.host, place.namespace, place.user))
        if machine is None or machine.exchange is None or all(rank != member for member, _ in machine.exchange.members):
            return None, {}
        return machine.exchange, machine.ranges


def _is_narrow(shape: Numbers, size: Numbers, item_bytes: int) -> bool:
    """Whether a box lies in several short runs."""
    if 0 in size:
        return False
    outer = len(shape)
    while outer > 0 and size[outer - 1] == shape[outer - 1]:
        outer -= 1
    if math.prod(size[: max(outer - 1, 0)]) <= 1:
        return False
    return math.prod(size[outer - 1 :]) * item_bytes < _LONG_RUN


def _common_range(
    boxes: Sequence[tuple[int, Numbers, Numbers]], shape: Numbers, item_bytes: int
) -> tuple[int, int] | None:
    """The bytes of a tensor that boxes of several ranks have together, if they are one range. The boxes do not overlap."""
    if len({rank for rank, _, _ in boxes}) < 2:
        return None
    dims = range(len(shape))
    first = [min(begin[i] for _, begin, _ in boxes) for i in dims]
    size = [max(begin[i] + count[i] for _, begin, count in boxes) - first[i] for i in dims]
    elements = math.prod(size)
    if elements != sum(math.prod(count) for _, _, count in boxes):
        return None
    inner = len(shape)
    while inner > 0 and size[inner - 1] == shape[inner - 1]:
        inner -= 1
    if math.prod(size[: max(inner - 1, 0)]) != 1:
        return None
    begin = 0
    for i in dims:
        begin = begin * shape[i] + first[i]
    return begin * item_bytes, (begin + elements) * item_bytes


def new_memory() -> int:
    """A descriptor of memory that other processes can open; -1 where the system has none."""
    try:
        return os.memfd_create("weightstore", os.MFD_CLOEXEC)
    except (AttributeError, OSError):
        return -1


@contextlib.contextmanager
def joined(exchange: Exchange | None, rank: int, own: int, timeout: float) -> Iterator[_core.BoxExchange | None]:
    """The part of this rank in an exchange. If the block raises, the other members are told. `own` is the descriptor of this rank's
    memory."""
    if exchange is None:
        yield None
        return
    with contextlib.ExitStack() as cleanup:
        process, number = exchange.memory
        is_owner = process == os.getpid()
        if is_owner:
            descriptor = own
        else:
            try:
                descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
            except OSError as error:
                raise errors.make(
                    "io",
                    f"cannot open the memory that the ranks of this machine share ({error.strerror}); pass "
                    "exchange=False to the StorageWriter",
                    path=f"/proc/{process}/fd/{number}",
                ) from None
            cleanup.callback(os.close, descriptor)
        os.ftruncate(descriptor, _core.BoxExchange.memory_bytes(len(exchange.members), exchange.blocks))
        peers = []
        for member, its_process in exchange.members:
            if member == rank:
                continue
            try:
                peers.append((member, os.pidfd_open(its_process)))
            except ProcessLookupError:
                raise errors.make("io", f"the process of rank {member} has ended during the save") from None
            cleanup.callback(os.close, peers[-1][1])
        core = _core.BoxExchange(descriptor, rank, len(exchange.members), exchange.blocks, peers, timeout)
        try:
            yield core
            if is_owner:
                core.wait_for_all()
        except BaseException:
            core.fail()
            raise
