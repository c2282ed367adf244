"""Keeps some tensors of a model in memory, within a budget, and reads the others when they are needed."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _core, errors
from ._files.file import File, source_of
from ._files.sizes import Size, format_size, parse_size
from ._files.source import Backend, OpenSource, Verify, kind_of, open_source
from ._policies import Policy, kind_of_policy, order_of
from ._tensor_roles import pinned_names
from ._tensors import dlpack, dtypes, frameworks
from ._tensors.dlpack import ArrayProtocols

if TYPE_CHECKING:
    import numpy as np
    import torch

_RAW = "U8"  # the type of tensors over a raw source, which does not say what it holds

Id = str | int


class PagedTensor(ArrayProtocols, _core.PagedTensor):
    """A tensor that a caller has acquired. It is a context manager, which releases the tensor at its end.

    Arrays and tensors made from it hold its memory by themselves, and can be kept for as long as they are needed. The
    pager counts that memory in `live_bytes`.
    """

    __slots__ = ()

    pager: Pager

    @property
    def name(self) -> str:
        """The name of the tensor; over a LayerPager with ids that are not text, the id as text."""
        return self.pager.describe(self.slot)[0]

    @property
    def dtype(self) -> dtypes.DType | None:
        """The element type by its SafeTensors name, also equal to the same type of torch and numpy; None over a raw source."""
        name = self.pager.describe(self.slot)[1]
        return None if name is None else dtypes.DType(name)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None over a raw source."""
        return self.pager.describe(self.slot)[2]

    def _form(self) -> tuple[str, tuple[int, ...]]:
        _, dtype, shape = self.pager.describe(self.slot)
        return (_RAW, (self.nbytes,)) if dtype is None or shape is None else (dtype, shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only numpy array over the pager's memory; its type is uint8 over a raw source."""
        from ._tensors import arrays

        dtype, shape = self._form()
        arrays.check_showable(self.name, dtype, shape)
        return arrays.from_memory(self._memory(), dtype, shape)

    def torch(self, *, copy: bool = False) -> torch.Tensor:
        """A torch tensor over the pager's memory. torch has no read-only tensors: what you write to it is what other
        callers see, unless you ask for a copy. Over a mapped file, your writes change neither the file nor what others see."""
        from ._tensors import torch_tensors

        dtype, shape = self._form()
        torch_tensors.check_showable(self.name, dtype, shape)
        memory = self.memory(True)
        if copy or memory is None or not torch_tensors.can_view(memory, dtype):
            memory = self._copied()
        return torch_tensors.from_memory(memory, dtype, shape)

    def bytes(self) -> bytes:
        """A copy of the stored bytes."""
        with memoryview(self._memory()) as view:
            return view.tobytes()

    def _memory(self) -> _core.Memory:
        memory = self.memory(False)
        assert memory is not None
        return memory

    def _copied(self) -> _core.Memory:
        memory = _core.allocate(self.nbytes)
        with memoryview(memory) as target, memoryview(self._memory()) as view:
            target[:] = view
        return memory

    def _capsule(self, *, versioned: bool, copy: bool | None) -> Any:
        dtype, shape = self._form()
        size = dlpack.item_bytes(self.name, dtype)
        return dlpack.capsule(
            self.name,
            dtype,
            dlpack.row_major(frameworks.shown_shape(dtype, shape, self.name), size),
            None if copy else self.memory(True) or self.memory(False),
            self._copied,
            versioned=versioned,
            must_share=copy is False,
        )

    def __repr__(self) -> str:
        if self.released:
            return f"<PagedTensor {self.name!r}, released>"
        dtype, shape = self._form()
        return (
            f"<PagedTensor {self.name!r} {dtype} {'x'.join(map(str, shape)) or 'scalar'}, {format_size(self.nbytes)}>"
        )


class Pager(_core.Pager):
    """Keeps tensors of a file in memory, within a budget. It evicts those that its policy chooses, and reads them again
    when they are needed. Thread-safe.

    source: a path, bytes, a binary file object, or a File. Over a mapped File, tensors are views of the mapping, and
        eviction gives the pages back to the system. Otherwise the pager reads tensors into buffers of its own.
    budget: bytes, or text such as "4GB" or "4GiB"; "auto" follows the available memory; None for no limit.
    pinned: tensors that are never evicted: names, slots, patterns such as "encoder.*", or the roles "embeddings", "head" and
        "last:4" (the last four layers).
    policy: "lru" evicts the least recently used tensor; "cyclic" is for tensors that are used in the same order again and again, and
        learns the order; schedule([...]) gives the order.
    window: with "cyclic" and schedule(), the part of the budget through which tensors that are not kept are read, at least.
    strict: False lets tensors that callers hold, and tensors that do not fit, exceed the budget; `over_budget_bytes`
        shows by how much. True counts all memory (`live_bytes`): acquire() waits for room or raises BudgetExceeded.
    direct: True bypasses the page cache. "auto" does so if the tensors together are larger than the available memory.
    readers: the number of threads that prefetch and help to read large tensors, 1 to 64.
    verify: compare the checksums of the file, as `weightstore.open` does; "lazy" unless given. A File has its own setting.
    """

    _opened: OpenSource | None = None  # not over a raw source

    def __init__(
        self,
        source: Any,
        budget: Size | None = None,
        *,
        pinned: Iterable[Id] = (),
        policy: Policy = "lru",
        strict: bool = False,
        direct: bool | Literal["auto"] = "auto",
        readers: int = 2,
        window: Size | None = None,
        verify: Verify | None = None,
    ) -> None:
        chosen = core_options(budget, policy, strict, direct, readers, window)
        opened = _opened(source, verify)
        wanted = id_list("pinned", pinned)
        by_slot = [opened.reader.describe(slot)[0] for slot in range(len(opened.reader))] if wanted else []
        pins = pinned_names(wanted, by_slot)
        order = [_name_of(id, opened.reader, "schedule") for id in order_of(policy)]
        self._opened = opened
        super().__init__(opened.reader, PagedTensor, pinned=pins, schedule=order, zero_copy=opened.mapped, **chosen)

    if TYPE_CHECKING:

        def acquire(self, id: Id, /, *, timeout: float | None = None) -> PagedTensor: ...

    def acquire_many(self, ids: Iterable[Id], *, timeout: float | None = None) -> list[PagedTensor]:
        """Acquires several tensors and returns them in this order. Missing ones are read at the same time."""
        return self._acquire_many(id_list("ids", ids), timeout)

    def prefetch(self, ids: Iterable[Id], *, wait: bool = False) -> None:
        """Reads tensors in the background, in this order, after the reads that callers wait for. A resident tensor
        becomes the most recently used one. The pager skips tensors that do not fit next to pinned tensors and unused
        prefetches. Read errors appear when the tensor is acquired. `wait` waits until all prefetches are complete."""
        self._prefetch(id_list("ids", ids), bool(wait))

    def slot(self, id: Id) -> int:
        """The slot of a tensor: its number, which saves the lookup of the name. TensorNotFound for an unknown name."""
        return super().slot(id)

    def is_resident(self, id: Id) -> bool:
        """Whether the tensor is in memory. False for an unknown name."""
        return super().is_resident(id)

    def is_pinned(self, id: Id) -> bool:
        """Whether the tensor is pinned. False for an unknown name."""
        return super().is_pinned(id)

    def pin(self, id: Id) -> None:
        """Keeps the tensor from being evicted. Pins are counted: each needs its own unpin()."""
        super().pin(id)

    def unpin(self, id: Id) -> None:
        """Takes back one pin()."""
        super().unpin(id)

    def evict(self, id: Id) -> bool:
        """Evicts one tensor. False when it is not resident, or is pinned."""
        return super().evict(id)

    @contextmanager
    def pinned(self, ids: Iterable[Id]) -> Iterator[None]:
        """Pins tensors for the time of a `with` block. Missing tensors are read only when they are acquired."""
        slots = [self.slot(id) for id in id_list("ids", ids)]
        for slot in slots:
            self.pin(slot)
        try:
            yield
        finally:
            for slot in slots:
                self.unpin(slot)

    @property
    def budget_bytes(self) -> int | None:
        """The budget in bytes; None when there is no limit."""
        return None if self._budget == _core.UNLIMITED else self._budget

    def set_budget(self, budget: Size | None) -> None:
        """Changes the budget, given as to the constructor, and evicts what no longer fits."""
        self._set_budget(_budget_bytes(budget), budget == "auto")

    @property
    def resident_bytes(self) -> int:
        """The bytes of all tensors that the pager keeps in memory."""
        return super().resident_bytes

    @property
    def resident_count(self) -> int:
        """The number of tensors that the pager keeps in memory."""
        return super().resident_count

    @property
    def live_bytes(self) -> int:
        """All memory that the pager uses: resident tensors, evicted tensors that callers hold, tensors being read, and buffers."""
        return super().live_bytes

    @property
    def over_budget_bytes(self) -> int:
        """By how much the resident tensors exceed the budget; 0 if they do not."""
        return super().over_budget_bytes

    @property
    def reads_directly(self) -> bool:
        """Whether reads bypass the page cache."""
        return super().reads_directly

    @property
    def policy(self) -> str:
        """The rule of eviction: "lru", "cyclic" or "schedule"."""
        return self.policy_state.partition(",")[0]

    @property
    def policy_state(self) -> str:
        """What the policy does at the moment, as text: whether it knows the order, and how much it keeps."""
        return super().policy_state

    def names(self) -> list[str]:
        """All names, in the order of their slots: text, or the ids of a LayerPager."""
        return [self.describe(slot)[0] for slot in range(len(self))]

    def keys(self) -> list[str]:
        """The same as names()."""
        return self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def stats(self, id: Id | None = None) -> dict[str, Any]:
        """Counters since the pager was made or reset_stats() was called, for all tensors or for one."""
        return {**self._stats(id), "policy_state": self.policy_state}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        budget = self.budget_bytes
        limit = "no limit" if budget is None else f"budget {format_size(budget)}"
        return (
            f"<{type(self).__name__} of {len(self)} tensors, {limit}, {self.resident_count} resident "
            f"({format_size(self.resident_bytes)})>"
        )


def _opened(source: Any, verify: Verify | None) -> OpenSource:
    """Opens the source of a pager. Tensors of bytes and of mapped Files are views; those of other sources are read."""
    if isinstance(source, File):
        if verify is not None:
            raise errors.make(
                "invalid_argument", "a File has its own verify=; give it to weightstore.open()", format="pager"
            )
        return source_of(source)
    if isinstance(source, OpenSource):
        return source
    kind = kind_of(source)
    if kind is None:
        raise TypeError(
            f"cannot page {errors.typed(source)}: give a path, bytes, a binary file object or a File; LayerPager takes "
            "callables"
        )
    backend: Backend = "mmap" if kind == "buffer" else "pread"
    return open_source(source, backend=backend, verify="lazy" if verify is None else verify)


def id_list(argument: str, ids: Iterable[Any]) -> list[Any]:
    if isinstance(ids, str):
        raise TypeError(f"{argument} must be a list of tensors; write [{ids!r}] for one")
    try:
        return list(ids)
    except TypeError:
        if hasattr(ids, "__iter__"):
            raise
        raise TypeError(f"{argument} must be a list of tensors, not {errors.typed(ids)}") from None


def _name_of(id: Any, reader: _core.Reader, argument: str) -> str:
    if isinstance(id, str):
        return id
    slot = whole_number(id, f"{argument} must hold names or slots of tensors")
    if not 0 <= slot < len(reader):
        raise errors.make(
            "not_found", f"{argument}: there is no slot {slot} among {len(reader)} tensors", format="pager"
        )
    return reader.describe(slot)[0]


def whole_number(value: Any, wanted: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{wanted}, not {value!r}") from None


def _budget_bytes(budget: Size | None) -> int:
    if budget is None or budget == _core.UNLIMITED:
        return _core.UNLIMITED
    if budget == "auto":
        return _core.automatic_budget()
    return _size(budget, "budget", least=0)


def _size(size: Size, what: str, *, least: int) -> int:
    try:
        return parse_size(size, what, least=least)
    except errors.StoreError as error:
        raise errors.placed(error, "pager") from None


def core_options(
    budget: Size | None, policy: Policy, strict: bool, direct: bool | str, readers: int, window: Size | None
) -> dict[str, Any]:
    if direct not in (True, False, "auto"):
        raise errors.make("invalid_argument", f"direct is {direct!r}; it must be True, False or 'auto'", format="pager")
    wanted = "readers must be a number of threads from 1 to 64"
    threads = whole_number(readers, wanted)
    if not 1 <= threads <= 64:
        raise errors.make("invalid_argument", f"{wanted}, not {threads}", format="pager")
    return {
        "budget": _budget_bytes(budget),
        "follow": budget == "auto",
        "strict": bool(strict),
        "direct": "auto" if direct == "auto" else "always" if direct else "never",
        "readers": threads,
        "policy": kind_of_policy(policy),
        "window": 0 if window is None else _size(window, "window", least=1),
    }
