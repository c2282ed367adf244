"""`weightstore.HashTable`: the hash table of `torch.classes.store` with types, docstrings and the errors of this package. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from .._tensors import dtypes
from .._torch_library.loading import load as load_library
from .arguments import is_table, whole_number, wrong
from .torch_errors import translate

InitializerKind = Literal["zeros", "constant", "uniform", "normal", "truncated_normal"]


class HashTable:
    """Rows by 64-bit ids, without collisions: every id has its own row in every slot. Slot 0 is "embedding"; the state of an
    optimizer and counters are further slots. Thread-safe; calls release the GIL. docs/hash-table.md tells more.

    >>> table = weightstore.HashTable("user", [16], torch.float32)
    >>> rows, embeddings = table.lookup(torch.tensor([7, 11]), insert=True)
    >>> weightstore.Saver(path="ckpt", hashtables={"user": table}).save()

    Ids are int64 tensors of one dimension. Values have the shape [ids, *shape of the slot] and the type of the slot. Both are on
    the CPU. `script_object` is the table for scripted modules: they take only the class of `torch.classes.store`.

    name: the name in checkpoints.
    shape: of one row of embeddings.
    dtype: of the embeddings, in any form: torch.float32, "BF16", np.float16.
    slice_begin, slice_end, slice_size: the table holds the ids whose bucket, id mod slice_size, is in [slice_begin, slice_end).
        By default all ids. Shard 1 of 4 has (16384, 32768, 65536).
    page_rows: rows that are copied together when one of them is written after a snapshot.
    children: the names of several tables that share this one; coalesced_ids() makes its ids of theirs.
    """

    __slots__ = ("__weakref__", "_table")

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: Any,
        slice_begin: int = 0,
        slice_end: int = 65536,
        slice_size: int = 65536,
        page_rows: int = 4096,
        children: Sequence[str] = (),
    ) -> None:
        load_library()
        self._table = _call(
            torch.classes.store.HashTable,
            _text("name", name),
            _shape(shape),
            _dtype(dtype),
            whole_number("slice_begin", slice_begin),
            whole_number("slice_end", slice_end),
            whole_number("slice_size", slice_size),
            whole_number("page_rows", page_rows),
            [_text("a name in children", child) for child in _listed("children", children)],
        )

    @classmethod
    def of(cls, script_object: Any) -> HashTable:
        """The table that a scripted module or a libtorch program made, as a HashTable. Both are the same table."""
        if isinstance(script_object, HashTable):
            return script_object
        if not is_table(script_object):
            raise wrong("script_object", script_object, "a torch.classes.store.HashTable")
        table = cls.__new__(cls)
        table._table = script_object
        return table

    @property
    def script_object(self) -> Any:
        """The `torch.classes.store.HashTable` of this table, for scripted modules. Both are the same table."""
        return self._table

    @property
    def hashtable_tag(self) -> int:
        """Tells tables from tensors in a state dict."""
        tag: int = self._table.hashtable_tag
        return tag

    # ---- what the table is -------------------------------------------------------------------------------------------

    def name(self) -> str:
        """The name in checkpoints."""
        name: str = self._table.name()
        return name

    def children(self) -> list[str]:
        """The names of the tables that share this one; for a table without children, its own name."""
        names: list[str] = self._table.children()
        return names

    def slot_names(self) -> list[str]:
        """The slots: "embedding", and those that add_slot() and touch() have added."""
        names: list[str] = self._table.slot_names()
        return names

    def slice(self) -> tuple[int, int, int]:
        """(begin, end, size): the table holds the ids whose bucket, id mod size, is in [begin, end)."""
        begin, end, size = self._table.slice()
        return begin, end, size

    def add_slot(self, name: str, shape: Sequence[int], dtype: Any, fill: float = 0.0) -> None:
        """Adds a column to the table, also if it has rows. New rows start with `fill` in it."""
        _call(self._table.add_slot, _text("name", name), _shape(shape), _dtype(dtype), float(fill))

    def set_initializer(self, kind: InitializerKind, a: float = 0.0, b: float = 0.0, seed: int = 0) -> None:
        """How embeddings of new rows start. They depend on the seed and the id alone.

        kind: "zeros"; "constant" (a); "uniform" (a to b); "normal" or "truncated_normal" (mean a, standard deviation b).
        """
        _call(self._table.set_initializer, _text("kind", kind), float(a), float(b), whole_number("seed", seed))

    # ---- rows --------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """The number of rows."""
        size: int = self._table.size()
        return size

    def ids(self) -> torch.Tensor:
        """The ids of all rows."""
        return _tensor_of(self._table.ids)

    def contains(self, ids: torch.Tensor) -> torch.Tensor:
        """Which of the ids have a row: a bool for each."""
        return _tensor_of(self._table.contains, _tensor("ids", ids))

    def lookup(self, ids: torch.Tensor, insert: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """(row numbers, embeddings) of the ids.

        insert: make rows for unknown ids. Otherwise an unknown id has the row number -1 and an embedding of zeros.
        """
        rows, embeddings = _call(self._table.lookup, _tensor("ids", ids), bool(insert))
        return rows, embeddings

    def lookup_out(self, ids: torch.Tensor, insert: bool, out: torch.Tensor) -> torch.Tensor:
        """As lookup(), but writes the embeddings into `out` and returns only the row numbers. For autograd this changes `out`
        in place."""
        return _tensor_of(self._table.lookup_out, _tensor("ids", ids), bool(insert), _tensor("out", out))

    def insert(self, ids: torch.Tensor, embeddings: torch.Tensor) -> None:
        """Writes embeddings, and makes rows for unknown ids. Of equal ids the last one counts."""
        _call(self._table.insert, _tensor("ids", ids), _tensor("embeddings", embeddings))

    def erase(self, ids: torch.Tensor) -> int:
        """Removes the rows of the ids, and returns how many there were."""
        return _int_of(self._table.erase, _tensor("ids", ids))

    def clear(self) -> None:
        """Removes all rows."""
        _call(self._table.clear)

    def reserve(self, rows: int) -> None:
        """Makes room for so many rows in all, so that the table need not grow while they are inserted."""
        _call(self._table.reserve, whole_number("rows", rows))

    def read_slot(self, name: str, ids: torch.Tensor) -> torch.Tensor:
        """The values of a slot. Unknown ids have zeros."""
        return _tensor_of(self._table.read_slot, _text("name", name), _tensor("ids", ids))

    def write_slot(self, name: str, ids: torch.Tensor, values: torch.Tensor) -> int:
        """Writes the values of a slot for the ids that have a row, and returns how many do."""
        return _int_of(self._table.write_slot, _text("name", name), _tensor("ids", ids), _tensor("values", values))

    def read_slot_rows(self, name: str, rows: torch.Tensor) -> torch.Tensor:
        """As read_slot(), by the row numbers that lookup() gave."""
        return _tensor_of(self._table.read_slot_rows, _text("name", name), _tensor("rows", rows))

    def write_slot_rows(self, name: str, rows: torch.Tensor, values: torch.Tensor) -> int:
        """As write_slot(), by the row numbers that lookup() gave."""
        return _int_of(
            self._table.write_slot_rows, _text("name", name), _tensor("rows", rows), _tensor("values", values)
        )

    def coalesced_ids(self, child: int, ids: torch.Tensor) -> torch.Tensor:
        """The ids in this table for ids of one of its children, given the number of the child."""
        return _tensor_of(self._table.coalesced_ids, whole_number("child", child), _tensor("ids", ids))

    # ---- eviction ----------------------------------------------------------------------------------------------------

    def touch(self, ids: torch.Tensor, step: int) -> int:
        """Notes that the ids were used in a step, in the slots "version" and "freq". Returns how many of them have a row."""
        return _int_of(self._table.touch, _tensor("ids", ids), whole_number("step", step))

    def evict_older(self, step: int) -> int:
        """Removes the rows that were last touched before a step, and returns their number."""
        return _int_of(self._table.evict_older, whole_number("step", step))

    def evict_rarer(self, count: int) -> int:
        """Removes the rows that were touched less than `count` times, and returns their number."""
        return _int_of(self._table.evict_rarer, whole_number("count", count))

    # ---- snapshots and changes -------------------------------------------------------------------------------------------

    def snapshot(self) -> HashTableSnapshot:
        """The table at this instant. Copies nothing: later writes copy the pages that they change."""
        return HashTableSnapshot(_call(self._table.snapshot))

    def epoch(self) -> int:
        """The number of snapshots so far."""
        epoch: int = self._table.epoch()
        return epoch

    def changed_since(self, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(changed, erased): the ids whose rows were made or written, and those that were removed, since a snapshot with this
        epoch. Raises an error when the table has forgotten some of them: then save the whole table."""
        changed, erased = _call(self._table.changed_since, whole_number("epoch", epoch))
        return changed, erased

    def __repr__(self) -> str:
        slots = ", ".join(self.slot_names())
        return f"<HashTable {self.name()!r}, {self.size()} rows, slots {slots}, slice {self.slice()}>"


class HashTableSnapshot:
    """A table at one instant, as `HashTable.snapshot` gives it."""

    __slots__ = ("_snapshot",)

    def __init__(self, snapshot: Any) -> None:
        self._snapshot = snapshot

    @property
    def script_object(self) -> Any:
        """The `torch.classes.store.HashTableSnapshot`."""
        return self._snapshot

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """The number of rows."""
        size: int = self._snapshot.size()
        return size

    def epoch(self) -> int:
        """What HashTable.changed_since() takes, to tell what has changed since this snapshot."""
        epoch: int = self._snapshot.epoch()
        return epoch

    def ids(self, child: int = 0) -> torch.Tensor:
        """The ids of all rows, or of those of one child, as the child counts."""
        return _tensor_of(self._snapshot.ids, whole_number("child", child))

    def slot(self, name: str, child: int = 0) -> torch.Tensor:
        """The values of a slot, in the order of ids()."""
        return _tensor_of(self._snapshot.slot, _text("name", name), whole_number("child", child))

    def __repr__(self) -> str:
        return f"<HashTableSnapshot, {self.size()} rows, epoch {self.epoch()}>"


# ---- calls and their arguments -----------------------------------------------------------------------------------------


# torch 2.6 cannot tell.
_is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def _call(method: Any, *arguments: Any) -> Any:
    if _is_exporting():
        raise RuntimeError(
            "torch.export cannot put a HashTable into a program: its rows are no constants of it. Look up before the exported module, and "
            "pass it the embeddings"
        )
    try:
        return method(*arguments)
    except RuntimeError as error:
        raise translate(error) from None


def _tensor_of(method: Any, *arguments: Any) -> torch.Tensor:
    tensor: torch.Tensor = _call(method, *arguments)
    return tensor


def _int_of(method: Any, *arguments: Any) -> int:
    number: int = _call(method, *arguments)
    return number


def _tensor(argument: str, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise wrong(argument, value, "a torch.Tensor")
    return value


def _text(argument: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(argument, value, "a str")
    return value


def _listed(argument: str, values: Any) -> list[Any]:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise wrong(argument, values, "a list")
    return list(values)


def _shape(shape: Any) -> list[int]:
    return [whole_number("a dimension of shape", dimension) for dimension in _listed("shape", shape)]


def _dtype(dtype: Any) -> torch.dtype:
    return dtypes.torch_dtype(dtypes.stored_name(dtype))
