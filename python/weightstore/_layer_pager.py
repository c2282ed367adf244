"""A pager over ranges of a raw source: tensors that the caller describes, by ids of any kind."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from . import _core, errors
from ._files.paths import check_local
from ._files.sizes import Size
from ._files.source import kind_of
from ._pager import PagedTensor, Pager, core_options, id_list, whole_number
from ._policies import Policy, order_of
from ._tensor_roles import pinned_names


class LayerPager(Pager):
    """A pager over ranges of a raw source. For the other arguments see Pager.

    source: a path, bytes, a binary file object, or a callable `read(offset, size)` that returns the bytes; or an object with
        the methods `read_bytes_at(offset, out)`, which fills the writable buffer `out`, and `total_size_bytes()`. Several threads call
        it at once.
    mapped: for a path, tensors are views of the mapped file, and eviction gives their pages back to the system.
    tensor_map: maps ids to ranges. An id is a text, or anything that can be the key of a dict: 7, ("layers", 0, "wq"). A range
        is `(offset, size)`, a mapping with these two keys, or an object with these two attributes. If any id is not a text, the
        methods of the pager take ids only; otherwise they also take slots.
    """

    _slots: dict[Any, int]

    if TYPE_CHECKING:  # the methods of Pager, for ids of any kind

        def slot(self, id: Any) -> int: ...
        def acquire(self, id: Any, /, *, timeout: float | None = None) -> PagedTensor: ...
        def acquire_many(self, ids: Iterable[Any], *, timeout: float | None = None) -> list[PagedTensor]: ...
        def prefetch(self, ids: Iterable[Any], *, wait: bool = False) -> None: ...
        def is_resident(self, id: Any) -> bool: ...
        def is_pinned(self, id: Any) -> bool: ...
        def pin(self, id: Any) -> None: ...
        def unpin(self, id: Any) -> None: ...
        def evict(self, id: Any) -> bool: ...
        def stats(self, id: Any = None) -> dict[str, Any]: ...
        def names(self) -> list[Any]: ...
        def keys(self) -> list[Any]: ...
        def __iter__(self) -> Iterator[Any]: ...

    def __init__(
        self,
        source: Any,
        tensor_map: Mapping[Any, Any],
        budget_bytes: Size | None = None,
        pinned: Iterable[Any] = (),
        *,
        policy: Policy = "lru",
        strict: bool = False,
        direct: bool | Literal["auto"] = "auto",
        readers: int = 2,
        window: Size | None = None,
        mapped: bool = False,
    ) -> None:
        _check_raw_source(source)
        if mapped and kind_of(source) != "path":
            raise errors.make("invalid_argument", "only a file that is given by its path can be mapped", format="pager")
        if hasattr(source, "read_bytes_at"):
            source = _SourceObject(source)
        entries = _entries(tensor_map)
        names = dict(zip(tensor_map, (entry[0] for entry in entries), strict=True))
        _core.Pager.__init__(
            self,
            source,
            entries,
            PagedTensor,
            pinned=_pinned_names(pinned, names),
            schedule=[names.get(id, str(id)) for id in order_of(policy)],
            zero_copy=True,
            mapped=bool(mapped),
            **core_options(budget_bytes, policy, strict, direct, readers, window),
        )
        if any(name is not id for id, name in names.items()):
            slots = {id: _core.Pager.slot(self, name) for id, name in names.items()}  # in the order of the offsets
            self._slots = dict(sorted(slots.items(), key=lambda item: item[1]))
            self.__class__ = _by_key(type(self))  # type: ignore[arg-type]


class _ByKey(LayerPager):
    """The methods of a LayerPager that has ids other than texts: they look up the slot of an id."""

    def _known(self, id: Any) -> int | None:
        try:
            return self._slots.get(id)
        except TypeError:
            raise TypeError(f"an id can be the key of a dict, unlike {errors.typed(id)}") from None

    def slot(self, id: Any) -> int:
        found = self._known(id)
        if found is None:
            raise errors.make("not_found", f"no tensor among {len(self)} has the id {id!r}", format="pager")
        return found

    def acquire(self, id: Any, /, *, timeout: float | None = None) -> PagedTensor:
        return super().acquire(self.slot(id), timeout=timeout)

    def acquire_many(self, ids: Iterable[Any], *, timeout: float | None = None) -> list[PagedTensor]:
        return super().acquire_many(map(self.slot, id_list("ids", ids)), timeout=timeout)

    def prefetch(self, ids: Iterable[Any], *, wait: bool = False) -> None:
        super().prefetch(map(self.slot, id_list("ids", ids)), wait=wait)

    def is_resident(self, id: Any) -> bool:
        slot = self._known(id)
        return slot is not None and super().is_resident(slot)

    def is_pinned(self, id: Any) -> bool:
        slot = self._known(id)
        return slot is not None and super().is_pinned(slot)

    def pin(self, id: Any) -> None:
        super().pin(self.slot(id))

    def unpin(self, id: Any) -> None:
        super().unpin(self.slot(id))

    def evict(self, id: Any) -> bool:
        return super().evict(self.slot(id))

    @contextmanager
    def pinned(self, ids: Iterable[Any]) -> Iterator[None]:
        given = id_list("ids", ids)
        for id in given:
            self.slot(id)
        for id in given:
            self.pin(id)
        try:
            yield
        finally:
            for id in given:
                self.unpin(id)

    def stats(self, id: Any = None) -> dict[str, Any]:
        return super().stats(None if id is None else self.slot(id))

    def names(self) -> list[Any]:
        return list(self._slots)

    def __contains__(self, id: Any) -> bool:
        return self._known(id) is not None


@cache
def _by_key(cls: type[LayerPager]) -> type[LayerPager]:
    """`cls` with the methods of _ByKey. Pagers whose ids are texts are spared the lookup: the core does that one."""
    bases = (_ByKey,) if cls is LayerPager else (cls, _ByKey)
    return type(cls.__name__, bases, {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _check_raw_source(source: Any) -> None:
    kind = kind_of(source)
    if kind == "path":
        try:
            check_local(os.fspath(source), "open")
        except errors.StoreError as error:
            raise errors.placed(error, "pager") from None
    elif kind is None and not callable(source) and not hasattr(source, "read_bytes_at"):
        raise TypeError(
            f"cannot page {errors.typed(source)}: give a path, bytes, a binary file object, a callable read(offset, size), or an "
            "object with read_bytes_at(offset, out) and total_size_bytes()"
        )


class _SourceObject:
    """Makes a callable of an object with read_bytes_at() and total_size_bytes()."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._total_size_bytes = whole_number(
            source.total_size_bytes(), "total_size_bytes() must return a number of bytes"
        )

    def __call__(self, offset: int, size: int) -> bytearray:
        out = bytearray(size)
        with memoryview(out) as view:
            self._source.read_bytes_at(offset, view)
        return out


def _pinned_names(pinned: Iterable[Any], names: Mapping[Any, str]) -> list[str]:
    """The core's names of the ids to pin. The core says which do not exist."""
    given = id_list("pinned", pinned)
    if all(isinstance(id, str) for id in names):
        for id in given:
            if not isinstance(id, str):
                raise TypeError(f"pinned must hold names of tensors, not {errors.typed(id)}")
        return pinned_names(given, list(names.values()))
    for id in given:
        if not isinstance(id, Hashable):
            raise TypeError(f"pinned must hold names of tensors, not {errors.typed(id)}")
    return [names.get(id, str(id)) for id in given]


def _entries(tensor_map: Mapping[Any, Any]) -> list[tuple[str, int, int]]:
    """Name, offset and size of every tensor. The core knows tensors by texts: the name of an id that is no text is its repr."""
    if not isinstance(tensor_map, Mapping):
        raise TypeError(f"tensor_map must map ids to (offset, size), but is {errors.typed(tensor_map)}")
    entries = []
    used = {id for id in tensor_map if isinstance(id, str)}
    for id, place in tensor_map.items():
        name = id if isinstance(id, str) else repr(id)
        if not isinstance(id, str):
            while name in used:
                name += "'"
            used.add(name)
        entries.append((name, *_range(id, place)))
    return entries


def _range(id: Any, place: Any) -> tuple[int, int]:
    """Offset and size of an entry: a pair, a mapping or an object."""
    try:
        if isinstance(place, Mapping):
            offset, size = place["offset"], place["size"]
        elif hasattr(place, "offset") and hasattr(place, "size"):
            offset, size = place.offset, place.size
        else:
            offset, size = place
    except (TypeError, ValueError, KeyError):
        raise TypeError(
            f"tensor_map must map {id!r} to (offset, size), or to something with an offset and a size, not to {place!r}"
        ) from None
    wanted = f"offset and size of {id!r} must be numbers of bytes"
    numbers = (whole_number(offset, wanted), whole_number(size, wanted))
    if min(numbers) < 0 or max(numbers) > _core.UNLIMITED:
        raise errors.make("invalid_argument", f"{wanted}, not {numbers!r}", format="pager")
    return numbers
