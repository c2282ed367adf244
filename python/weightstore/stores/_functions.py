"""Saving a module into a store or a file, and loading it: as functions, and as methods of the module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .. import errors
from .._files.file import File
from .._files.formats import format_of_files, format_to_write
from .._files.source import kind_of
from .._modules.adapters import ModuleAdapter
from .._modules.apply.result import ApplyResult
from .._modules.filter import PathFilter
from .._modules.layers import Types
from .._modules.module_store import ModuleStore
from .._modules.module_tensors import apply, collect
from .._modules.snapshot import TensorSnapshot
from ._builder import as_path
from ._file import FileStore
from ._reading import store_of
from ._writing import WritingStore

StoreOrPath = ModuleStore | str | os.PathLike[str]
StoreOrFile = ModuleStore | File | str | os.PathLike[str]


def save_into(module: Any, store: StoreOrPath) -> None:
    """Saves a module into a store or a file. The same as store.collect_from(module).

    store: a store; or a path, whose ending tells the format. A file that exists is not replaced: that, and everything else
        that can be chosen, is for a store to say, as in `SafetensorsStore.from_file(path).overwrite(True)`.
    """
    _target(store).collect_from(module)


def load_from(module: Any, store: StoreOrFile) -> ApplyResult:
    """Loads a module from a store or a file. The same as store.apply_to(module).

    store: a store; or a path of a file of any format, which means FileStore.from_file(path); or an open File.
    """
    if isinstance(store, File):
        return FileStore(None, store).apply_to(module)
    if kind_of(store) == "path":
        return FileStore.from_file(as_path(store)).apply_to(module)
    return _checked(store, "apply_to").apply_to(module)


def _target(store: Any) -> ModuleStore:
    if kind_of(store) != "path":
        return _checked(store, "collect_from")
    path = as_path(store)
    kind = store_of(format_of_files(format_to_write(path)))  # a set of shards is the store's as well
    if not issubclass(kind, WritingStore):
        raise errors.make("invalid_argument", "no store writes this format; use another ending", path=path)
    return kind.from_file(path)


def _checked(store: Any, method: str) -> ModuleStore:
    if not hasattr(store, method):
        raise TypeError(f"expected a store or a path; {errors.typed(store)} has no {method}()")
    made: ModuleStore = store
    return made


class ModuleSnapshot:
    """Gives a module collect, apply, save_into and load_from as methods: `class Net(ModuleSnapshot, torch.nn.Module)`.

    It comes before torch.nn.Module, which has an `apply` of its own; that one is still there when `apply` is given a
    function.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        bases = cls.__mro__
        if any(base.__name__ == "Module" and "apply" in vars(base) for base in bases[: bases.index(ModuleSnapshot)]):
            raise TypeError(f"{cls.__name__}: name ModuleSnapshot before torch.nn.Module in the list of base classes")

    def collect(
        self,
        filter: PathFilter | None = None,
        adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
        skip_enum_variants: bool = False,
        *,
        types: Types | None = None,
    ) -> list[TensorSnapshot]:
        """Snapshots of the tensors, as collect() of this package gives them."""
        return collect(self, filter, adapter, skip_enum_variants, types=types)

    def apply(
        self,
        snapshots: Iterable[TensorSnapshot] | Mapping[str, TensorSnapshot] | Callable[[Any], Any],
        filter: PathFilter | None = None,
        adapter: ModuleAdapter | type[ModuleAdapter] | None = None,
        skip_enum_variants: bool = False,
        **options: Any,
    ) -> Any:
        """apply() of this package; given a function, the apply() of torch.nn.Module."""
        if callable(snapshots):
            return super().apply(snapshots)  # type: ignore[misc]
        return apply(self, snapshots, filter, adapter, skip_enum_variants, **options)

    def save_into(self, store: StoreOrPath) -> None:
        """Saves the module into a store or a file."""
        save_into(self, store)

    def load_from(self, store: StoreOrFile) -> ApplyResult:
        """Loads the module from a store or a file."""
        return load_from(self, store)
