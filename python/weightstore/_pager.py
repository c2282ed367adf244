"""Tensors under a budget of memory: read when they are acquired, let go when others need the room."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from . import _core, errors
from ._files.file import File, source_of
from ._files.sizes import format_size, parse_size
from ._files.source import OpenSource, kind_of, open_source
from ._tensors import dlpack, frameworks
from ._tensors.dlpack import ArrayProtocols

if TYPE_CHECKING:
    import numpy as np
    import torch

_RAW = "U8"  # what is shown of a source that does not say what it holds

Id = str | int


class PagedTensor(ArrayProtocols, _core.PagedTensor):
    """A tensor that was acquired. A context manager: its end lets the tensor go.

    Arrays and tensors made from it hold its memory by themselves, and may be kept for as long as they are needed; the
    pager counts them in `live_bytes`.
    """

    __slots__ = ()

    pager: Pager

    @property
    def name(self) -> str:
        return self.pager.describe(self.slot)[0]

    @property
    def dtype(self) -> str | None:
        """The element type by SafeTensors' name; None over a raw source."""
        return self.pager.describe(self.slot)[1]

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None over a raw source."""
        return self.pager.describe(self.slot)[2]

    def _form(self) -> tuple[str, tuple[int, ...]]:
        _, dtype, shape = self.pager.describe(self.slot)
        return (_RAW, (self.nbytes,)) if dtype is None or shape is None else (dtype, shape)

    def numpy(self) -> np.ndarray[Any, Any]:
        """As a read-only numpy array over the pager's memory; bytes (uint8) over a raw source."""
        from ._tensors import arrays

        dtype, shape = self._form()
        arrays.check_showable(self.name, dtype, shape)
        return arrays.from_memory(self._memory(), dtype, shape)

    def torch(self, *, copy: bool = False) -> torch.Tensor:
        """As a torch tensor over the pager's memory. torch has no read-only tensors: what is written to it is what others
        find when they acquire the tensor, unless it is a copy. Over a mapped file writing changes neither."""
        from ._tensors import torch_tensors

        dtype, shape = self._form()
        torch_tensors.check_showable(self.name, dtype, shape)
        memory = self.memory(True)
        if copy or memory is None or not torch_tensors.is_aligned(memory, dtype):
            memory = self._copied()
        return torch_tensors.from_memory(memory, dtype, shape)

    def bytes(self) -> bytes:
        """A copy of its bytes as they are stored."""
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
    """The tensors of a file under a budget of memory: those acquired last are resident, the others are read again when
    they are needed. Thread-safe.

    source: a path; bytes; a binary file object; or a File. Over a File that is mapped, tensors are views of the mapping,
        and evicting them gives the pages back; otherwise they are read into memory of their own.
    budget: bytes as a number or as "4GB"; "auto" for what the machine, or the control group, leaves; None for no limit.
    pinned: names or slots that are never evicted.
    strict: False lets what callers hold, and what does not fit, exceed the budget, and says so in `over_budget_bytes`.
        True counts all memory (`live_bytes`), and has acquire() wait for room, or raise BudgetExceeded.
    direct: True reads around the page cache, "auto" does so when the tensors together exceed the available memory.
    readers: threads that prefetch, and share the work of large tensors.
    """

    def __init__(
        self,
        source: Any,
        budget: int | str | None = None,
        *,
        pinned: Iterable[Id] = (),
        policy: Literal["lru"] = "lru",
        strict: bool = False,
        direct: bool | Literal["auto"] = "auto",
        readers: int = 2,
    ) -> None:
        options = _options(budget, policy, strict, direct, readers)
        opened = _opened(source)
        names = [id if isinstance(id, str) else opened.reader.describe(id)[0] for id in pinned]
        super().__init__(opened.reader, PagedTensor, pinned=names, zero_copy=opened.mapped, **options)

    if TYPE_CHECKING:

        def acquire(self, id: Id, /, *, timeout: float | None = None) -> PagedTensor: ...
        def acquire_many(self, ids: Iterable[Id], *, timeout: float | None = None) -> list[PagedTensor]: ...

    def prefetch(self, ids: Iterable[Id], *, wait: bool = False) -> None:
        """Has tensors read in the background, in this order, and after what callers wait for. Those that are resident
        count as just used; those for which there is no room are left out. Errors show when they are acquired."""
        self._prefetch(ids, wait)

    @contextmanager
    def pinned(self, ids: Iterable[Id]) -> Iterator[None]:
        """Keeps tensors from being evicted for a while; they are read when they are acquired."""
        slots = [self.slot(id) for id in ids]
        for slot in slots:
            self.pin(slot)
        try:
            yield
        finally:
            for slot in slots:
                self.unpin(slot)

    @property
    def budget_bytes(self) -> int | None:
        """None when there is no limit."""
        return None if self._budget == _core.UNLIMITED else self._budget

    def set_budget(self, budget: int | str | None) -> None:
        """As when the pager was made; evicts what no longer fits."""
        self._set_budget(_budget_bytes(budget))

    @property
    def policy(self) -> str:
        return "lru"

    def names(self) -> list[str]:
        """All names, by slot."""
        return [self.describe(slot)[0] for slot in range(len(self))]

    def stats(self, id: Id | None = None) -> dict[str, Any]:
        """Counters since the pager was made or reset_stats() was called, of all tensors or of one."""
        return {**self._stats(id), "policy_state": self.policy}

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


class LayerPager(Pager):
    """Ranges of a raw source under a budget: `{id: (offset, size)}`.

    source: a path; bytes; a binary file object; or a callable that is given an offset and a size and returns the bytes,
        from several threads.
    """

    def __init__(
        self,
        source: Any,
        tensor_map: Mapping[str, tuple[int, int]],
        budget_bytes: int | str | None = None,
        pinned: Iterable[str] = (),
        *,
        policy: Literal["lru"] = "lru",
        strict: bool = False,
        direct: bool | Literal["auto"] = "auto",
        readers: int = 2,
    ) -> None:
        _core.Pager.__init__(
            self,
            source,
            [(name, offset, size) for name, (offset, size) in tensor_map.items()],
            PagedTensor,
            pinned=list(pinned),
            zero_copy=True,
            **_options(budget_bytes, policy, strict, direct, readers),
        )


def _opened(source: Any) -> OpenSource:
    """Opens what a pager is given. Bytes and mapped Files are paged in place; other sources are read."""
    if isinstance(source, File):
        return source_of(source)
    kind = kind_of(source)
    if kind is None:
        raise TypeError(
            f"cannot page a {type(source).__name__}: give a path, bytes, a binary file object or a File; LayerPager takes "
            "callables"
        )
    return open_source(source, backend="mmap" if kind == "buffer" else "pread", verify="lazy")


def _budget_bytes(budget: int | str | None) -> int:
    if budget is None:
        return _core.UNLIMITED
    if budget == "auto":
        return _core.automatic_budget()
    if isinstance(budget, str):
        return parse_size(budget)
    if not 0 <= budget <= _core.UNLIMITED:
        raise errors.make("invalid_argument", f"a budget of {budget} bytes makes no sense", format="pager")
    return budget


def _options(budget: int | str | None, policy: str, strict: bool, direct: bool | str, readers: int) -> dict[str, Any]:
    if policy != "lru":
        raise errors.make("invalid_argument", f"policy is {policy!r}; there is only 'lru'", format="pager")
    if direct not in (True, False, "auto"):
        raise errors.make("invalid_argument", f"direct is {direct!r}; it is True, False or 'auto'", format="pager")
    if not 1 <= readers <= 64:
        raise errors.make("invalid_argument", f"readers is {readers}; it is from 1 to 64", format="pager")
    return {
        "budget": _budget_bytes(budget),
        "strict": bool(strict),
        "direct": "auto" if direct == "auto" else "always" if direct else "never",
        "readers": readers,
    }
