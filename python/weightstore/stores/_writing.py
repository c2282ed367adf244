"""The half of a store that writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

from .. import _core, errors
from .._files import saving
from .._files.formats import FORMATS
from .._modules.adapters import ModuleAdapter, as_adapter
from .._modules.layers import LayerTypes, Types, make_layer_types
from .._modules.module_tensors import collect_with_origins, named
from .._modules.param_ids import id_of
from .._modules.places import gather, is_torch_module
from .._modules.snapshot import TensorSnapshot
from .._modules.values.original import TensorValue
from .._tensors import batches, frameworks
from ._reading import ReadingStore, collision


class WritingStore(ReadingStore):
    """Writes a file, or the contents of one."""

    _default_metadata: ClassVar[dict[str, str]]
    _ties_once: bool  # tied tensors are written under one name, and the metadata has the others

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__(path, data)
        self._to_adapter: ModuleAdapter | None = None
        self._to_types: LayerTypes | None = None
        self._metadata: dict[str, str] = dict(self._default_metadata)
        self._describes = True
        self._overwrite = False
        self._checksums = False
        self._durable = True

    @classmethod
    def from_static(cls, data: Any) -> Self:
        """A store over contents that stay where they are for good: from_bytes() with zero_copy(True)."""
        return cls.from_bytes(data).zero_copy(True)

    # ---- options -------------------------------------------------------------------------------------------------

    def with_to_adapter(self, adapter: ModuleAdapter | type[ModuleAdapter], *, types: Types | None = None) -> Self:
        """Changes tensors on their way from a module into the file.

        types: the types of the module's layers, for an adapter that needs them and a module that does not have them (a dict of
        arrays, the snapshots of a file). See with_from_adapter().
        """
        made = as_adapter(adapter)
        with self._placing():
            self._to_types = make_layer_types(types, made)
        self._to_adapter = made
        return self

    def metadata(self, key: str, value: str) -> Self:
        """Adds an entry to what is saved; an earlier one with this key is replaced."""
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata maps str to str, not {key!r} to {value!r}")
        self._metadata[key] = value
        return self

    def clear_metadata(self) -> Self:
        """Forgets all metadata, also what a store writes by itself. Entries added later are saved."""
        self._metadata = {}
        self._describes = False
        return self

    def overwrite(self, allow: bool) -> Self:
        """Whether saving may replace a file."""
        self._overwrite = bool(allow)
        return self

    def checksums(self, enable: bool) -> Self:
        """Whether saving writes a crc32c of every tensor. verify() says whether loading compares them."""
        self._checksums = bool(enable)
        return self

    def durable(self, enable: bool) -> Self:
        """Whether what was saved survives a power failure once saving returns."""
        self._durable = bool(enable)
        return self

    # ---- saving --------------------------------------------------------------------------------------------------

    def collect_from(self, module: Any) -> None:
        """Saves a module's tensors, one at a time: nothing is copied as a whole.

        module: a torch.nn.Module or a nested mapping of arrays and tensors; also of TensorSnapshots (such as another store's
        get_all_snapshots()), DeferredTensors or the handles of an open file, which are read one after the other; or several
        snapshots, of which the last of a name counts.
        """
        with self._placing():
            writer = self._plan_batch(module)
            self._write(self._plan(self._collected(module)) if writer is None else writer)
            self._forget()

    def get_bytes(self) -> bytes:
        """The contents that were given, or that were saved into a store over bytes."""
        if self._path is not None:
            raise self._no_bytes("the store is over a file; read the file, or save into from_bytes(None)")
        if self._data is None:
            raise self._no_bytes("nothing was saved into the store")
        return self._data if isinstance(self._data, bytes) else bytes(self._data)

    def _no_bytes(self, why: str) -> errors.StoreError:
        return errors.make("invalid_argument", f"there are no bytes to give: {why}", format=self._format)

    def _collected(self, module: Any) -> list[tuple[str, TensorSnapshot]]:
        """Names in the module, and what is saved of them."""
        if not (isinstance(module, Mapping) or is_torch_module(module)) and isinstance(module, Iterable):
            module = named(module)
        return collect_with_origins(
            module, self._filter, self._to_adapter, self._skips_variants, self._to_types, refuses_nothing=True
        )

    def _plan_batch(self, module: Any) -> _core.Writer | None:
        """The plan for a module of which nothing but names changes on the way, made without a snapshot of each tensor. None if
        that is not so."""
        if self._filter is not None or self._to_adapter is not None or self._skips_variants:
            return None
        gathered = gather(module)
        if gathered is None:
            return None
        paths, values, owners = gathered
        batch = batches.look_at(values)
        below = "" if self._top_level_key is None else self._top_level_key + "."
        unchanged = not below and self._remapper.is_empty()
        names = paths if unchanged else [below + self._remapper.rename(path) for path in paths]
        if batch.others() or len(set(names)) != len(names):
            return None
        ids = [id_of(*owner, path) for owner, path in zip(owners, paths, strict=True)] if self._has_ids else None
        metadata = self._described()
        same = batch.same_as_earlier() if self._ties_once else {}
        if same:
            for number, first in same.items() if self._describes else ():
                metadata.setdefault(names[number], names[first])
            kept = [number for number in range(len(names)) if number not in same]
            names, values = [names[number] for number in kept], [values[number] for number in kept]
            batch = batches.look_at(values)
            ids = None if ids is None else [ids[number] for number in kept]
        writer = _core.Writer()
        writer.add_batch(names, batch, param_ids=ids)
        if metadata:
            writer.set_metadata(metadata)
        self._add_scalars(writer)
        return writer

    @property
    def _has_ids(self) -> bool:
        return FORMATS[self._format].has_param_ids

    def _plan(self, collected: Iterable[tuple[str, TensorSnapshot]]) -> _core.Writer:
        writer = _core.Writer()
        metadata = self._described()
        origins: dict[str, str] = {}
        written: dict[Any, str] = {}
        below = "" if self._top_level_key is None else self._top_level_key + "."
        for origin, snapshot in collected:
            name = below + self._remapper.rename(snapshot.full_path)
            if name in origins:
                raise collision(name, origins[name], origin)
            origins[name] = origin
            values = snapshot._values
            if self._ties_once and isinstance(values, TensorValue) and values.tensor.device.type != "meta":
                kept = written.setdefault(frameworks.identity(values.tensor), name)
                if kept != name:
                    if self._describes:
                        metadata.setdefault(name, kept)
                    continue
            try:
                values.add_to(writer, name, self._id(origin, snapshot), self._format)
            except errors.StoreError as error:
                if error.tensor is None:
                    error.tensor = name
                raise
        if metadata:
            writer.set_metadata(metadata)
        self._add_scalars(writer)
        return writer

    def _described(self) -> dict[str, str]:
        """The metadata to write."""
        return dict(self._metadata)

    def _id(self, origin: str, snapshot: TensorSnapshot) -> int | None:
        """The parameter id to write. origin: the name in the module, which no renaming changes."""
        return None

    def _add_scalars(self, writer: _core.Writer) -> None:
        pass

    def _format_options(self) -> dict[str, Any]:
        """What saving.write() is told beside what all stores tell it."""
        return {}

    def _write(self, writer: _core.Writer) -> None:
        options = self._format_options()
        if self._path is None:
            self._data = writer.write_bytes(self._format, checksums=self._checksums, burn=options.get("burn", ""))
            return
        saving.write(
            writer,
            self._file_path(),
            durable=self._durable,
            checksums=self._checksums,
            overwrite=self._overwrite,
            progress=self._progress,
            **{"format": self._format, **options},
        )
