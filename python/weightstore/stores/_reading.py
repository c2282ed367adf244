"""The half of a store that reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self

from .. import errors
from .._files.entries.metadata import metadata_of
from .._files.formats import FORMATS, title_of
from .._files.progress import reporting
from .._files.source import OpenSource, kind_of, open_source
from .._modules.apply.commit import commit
from .._modules.apply.plan import Plan, Rules, make_plan
from .._modules.apply.result import ApplyResult
from .._modules.apply.straight import StraightLoad, plan_straight
from .._modules.indices import contiguous_names
from .._modules.snapshot import TensorSnapshot
from .._modules.values.original import FileTensor
from ._builder import Builder, as_path, extension_of

Rename = Callable[[Iterable[str]], dict[str, str]]

# By format, the store that keeps files of it. Each class enters itself; FileStore, which has no format, as "".
_stores: dict[str, type[ReadingStore]] = {}


def store_of(format: str) -> type[ReadingStore]:
    """The store for files of a format: one of the format's own, or FileStore."""
    return _stores.get(format) or _stores[""]


class _Snapshots(Mapping[str, TensorSnapshot]):
    """Snapshots of the tensors of a file, by their names in the store. Each is made when somebody asks for it."""

    def __init__(self, source: OpenSource, numbers: dict[str, int], shares: bool) -> None:
        self._opened = source
        self._numbers = numbers
        self._shares = shares
        self._has_ids = FORMATS[source.format].has_param_ids
        self._made: dict[str, TensorSnapshot] = {}

    def __getitem__(self, name: str) -> TensorSnapshot:
        made = self._made.get(name)
        if made is None:
            number, reader = self._numbers[name], self._opened.reader
            values = FileTensor(self._opened, number, reader.describe(number), self._shares)
            made = TensorSnapshot(name, values, param_id=reader.param_id(number) if self._has_ids else None)
            self._made[name] = made
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


class _Contents:
    """What a file holds, under the names the store gives it."""

    def __init__(self, source: OpenSource, names: list[str], rename: Rename, shares: bool) -> None:
        self.source = source
        reader = source.reader
        # save_model() and SafetensorsStore note the other names of tied tensors in the metadata.
        known = set(names)
        noted = {name: kept for name, kept in self.metadata.items() if kept in known and name not in known}
        renamed = rename([*names, *noted])
        numbers = [reader.at(name) for name in names] if len(names) != len(reader) else reader.numbers()
        entries = [(renamed[name], name, number) for name, number in zip(names, numbers, strict=True)]
        entries.sort(key=lambda entry: entry[0])
        for (one, origin, _), (other, other_origin, _) in pairwise(entries):
            if one == other:
                raise collision(one, origin, other_origin)
        self.snapshots = _Snapshots(source, {name: number for name, _, number in entries}, shares)
        self.aliases = {renamed[name]: renamed[kept] for name, kept in noted.items() if name in renamed}
        self._shown: dict[str, TensorSnapshot] = {}

    @property
    def metadata(self) -> dict[str, str]:
        """As text: of a GGUF file without its arrays."""
        return self.source.reader.metadata() or {}

    # What is handed out are copies: changing a snapshot's name there does not change the store.

    def shown(self, name: str) -> TensorSnapshot | None:
        if name not in self._shown and name in self.snapshots:
            self._shown[name] = self.snapshots[name].renamed(name)
        return self._shown.get(name)

    @cached_property
    def all_shown(self) -> dict[str, TensorSnapshot]:
        return {name: snapshot for name in self.snapshots if (snapshot := self.shown(name)) is not None}


def collision(name: str, one: str, other: str) -> errors.StoreError:
    return errors.make(
        "invalid_argument",
        f"'{one}' and '{other}' would both be named '{name}'; change the rules for renaming, or leave one out with a filter",
    )


class ReadingStore(Builder):
    """Reads a file, or the contents of one."""

    _default_skip_enum_variants = False
    _default_map_indices: bool | Literal["auto"] = False

    def __init__(self, path: str | None, data: Any) -> None:
        super().__init__()
        self._path = path
        self._data = data
        self._source: OpenSource | None = None
        self._contents: _Contents | None = None

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """A store over a file, which need not exist before it is saved to."""
        return cls(as_path(path), None)

    @classmethod
    def from_bytes(cls, data: Any = None) -> Self:
        """A store over the contents of a file: bytes, or anything with a buffer, of which a reference is kept."""
        if data is not None and kind_of(data) != "buffer":
            raise TypeError(
                f"contents are bytes or have a buffer, unlike {type(data).__name__}; from_file() takes paths"
            )
        return cls(None, data)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_format" in vars(cls):
            _stores.setdefault(cls._format, cls)
            cls.Error = errors.place_of(cls._format)

    def _changed(self) -> Self:
        self._forget()
        return self

    def _forget(self) -> None:
        """What was read is read again when it is needed."""
        self._source = None
        self._contents = None

    def _file_path(self) -> str:
        assert self._path is not None
        if self._auto_extension and extension_of(os.path.basename(self._path)) is None:
            return self._path + FORMATS[self._format].endings[0]
        return self._path

    def _existing_path(self) -> str:
        """A file without an ending is found, too."""
        assert self._path is not None
        path = self._file_path()
        return self._path if os.path.isfile(self._path) and not os.path.exists(path) else path

    # ---- direct access -------------------------------------------------------------------------------------------

    def keys(self) -> list[str]:
        """The names of all tensors, as remapped, sorted by their UTF-8 bytes. Filters do not apply."""
        return list(self._read().snapshots)

    def get_all_snapshots(self) -> dict[str, TensorSnapshot]:
        """All tensors by name, in the order of keys(). Values are not read; filters and adapters do not apply."""
        return self._read().all_shown

    def get_snapshot(self, name: str) -> TensorSnapshot | None:
        """One tensor, or None."""
        return self._read().shown(name)

    def get_metadata(self) -> dict[str, str]:
        """The metadata of the file, as text. Arrays of a GGUF file are not among them; `weightstore.open(path).metadata` has them."""
        with self._placing():
            return self._read().metadata

    def _read(self) -> _Contents:
        if self._contents is None:
            with self._placing():
                source = self._opened()
                names = self._below_key(source.reader.names())
                self._contents = _Contents(source, names, self._renamed, self._zero_copy)
        return self._contents

    def _opened(self) -> OpenSource:
        if self._source is None:
            self._source = self._open()
        return self._source

    def _open(self) -> OpenSource:
        if self._path is None and self._data is None:
            raise errors.make(
                "invalid_argument", "the store is empty: nothing was saved into it, and no bytes were given"
            )
        given = self._data if self._path is None else self._existing_path()
        source = open_source(given, **self._open_options())
        self._check_format(source)
        return source

    def _check_format(self, source: OpenSource) -> None:
        if source.format != self._format:
            raise errors.make(
                "unsupported",
                f"this is a {title_of(source.format)} file, not a {title_of(self._format)} file; "
                f"{store_of(source.format).__name__} reads it",
                path=source.path,
            )

    def _open_options(self) -> dict[str, Any]:
        return {"verify": self._verify}

    # ---- names ---------------------------------------------------------------------------------------------------

    def _defaults(self) -> type[ReadingStore]:
        """The class whose defaults hold for options that were not set."""
        return type(self)

    @property
    def _skips_variants(self) -> bool:
        set_to = self._skip_enum_variants
        return self._defaults()._default_skip_enum_variants if set_to is None else set_to

    @property
    def _maps_indices(self) -> bool | Literal["auto"]:
        set_to = self._map_indices
        return self._defaults()._default_map_indices if set_to is None else set_to

    def _below_key(self, names: list[str]) -> list[str]:
        if self._top_level_key is None:
            return names
        prefix = self._top_level_key + "."
        chosen = [name for name in names if name.startswith(prefix)]
        if not chosen:
            known = sorted({name.partition(".")[0] for name in names})
            shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
            raise errors.make(
                "not_found",
                f"there are no tensors below '{self._top_level_key}'; names begin with: {shown or 'nothing'}",
                path=self._path,
            )
        return chosen

    def _renamed(self, names: Iterable[str]) -> dict[str, str]:
        """File name to store name, for names below the top-level key."""
        prefix = "" if self._top_level_key is None else self._top_level_key + "."
        renamed = {name: self._remapper.rename(name[len(prefix) :]) for name in names if name.startswith(prefix)}
        if self._maps_indices is not True:
            return renamed
        contiguous = contiguous_names(renamed.values(), self._keeps_indices)
        return {name: contiguous[new] for name, new in renamed.items()}

    def _keeps_indices(self, prefix: str) -> bool:
        return any(regex.compiled.search(prefix) for regex in self._kept_indices)

    # ---- loading -------------------------------------------------------------------------------------------------

    def apply_to(self, module: Any) -> ApplyResult:
        """Loads tensors into a module.

        Names, shapes and types are checked before anything is changed: a load that fails these checks leaves the module as it
        was. Raises ValidationError when tensors do not fit (unless validate(False)) or are not used (after
        allow_unused(False)), and TensorNotFound when parameters are missing (unless allow_partial(True)), both with the
        `result`. When reading fails later on, the error's `replaced`
        lists the parameters that were changed by then.
        """
        with self._placing():
            straight = self._plan_straight(module)
            if straight is not None:
                self._check(straight.result)
                with reporting(self._progress) as report:
                    straight.commit(report)
                return straight.result
            plan = self._load_plan(module, self._read())
            self._check(plan.result)
            with reporting(self._progress) as report:
                commit(plan, zero_copy=self._zero_copy, progress=report)
        return plan.result

    def _plan_straight(self, module: Any) -> StraightLoad | None:
        """None if an option, or something in the file or the module, asks for more than reading."""
        source = self._opened()
        changes_names = self._top_level_key is not None or self._maps_indices is True or not self._remapper.is_empty()
        if changes_names or self._filter is not None or self._from_adapter is not None or self._zero_copy:
            return None
        return plan_straight(source, module)

    def _load_plan(self, module: Any, contents: _Contents) -> Plan:
        rules = Rules(
            filter=self._filter,
            adapter=self._from_adapter,
            types=self._from_types,
            skip_enum_variants=self._skips_variants,
            match_indices=self._maps_indices == "auto",
            keeps_indices=self._keeps_indices,
            filter_missing=self._filter_missing,
            dtype_policy=self._dtype_policy,
            aliases=contents.aliases,
            metadata=metadata_of(contents.source.reader),
        )
        return make_plan(module, contents.snapshots, rules, refuses_nothing=True)

    def _paged(self, module: Any, opened: OpenSource | None = None) -> tuple[Plan, OpenSource]:
        """Which tensor goes where, and an open source for a pager: its files are not mapped, and checksums are compared.

        A buffer that has values already may be missing from the file. `opened` is the source of a pager that there is.
        """
        with self._placing():
            source = self._open_for_paging() if opened is None else opened
            self._check_format(source)
            contents = _Contents(source, self._below_key(source.reader.names()), self._renamed, False)
            plan = self._load_plan(module, contents)
            kept = {path for path, buffer in module.named_buffers() if buffer.device.type != "meta"}
            plan.result.missing = [name for name in plan.result.missing if str(name) not in kept]
            self._check(plan.result)
        return plan, source

    def _open_for_paging(self) -> OpenSource:
        if self._path is None:
            return self._open()
        options = self._open_options()
        if options["verify"] == "off":
            options["verify"] = "lazy"
        return open_source(self._existing_path(), backend="pread", **options)

    def _check(self, result: ApplyResult) -> None:
        """Raises when the result is not what was asked for. Nothing has been applied then."""
        if result.errors and self._validate:
            code, tensor = "validation", result.errors[0].path
            text = "tensors do not fit the module, which was left as it was (validate(False) loads the others)"
        elif result.missing and not self._allow_partial:
            code, tensor = "not_found", str(result.missing[0])
            text = "parameters are missing from the file; the module was left as it was (allow_partial(True) loads the others"
            text += "; a filter does not make them optional, filter_missing(True) does)" if self._filter else ")"
        elif result.unused and not self._allow_unused:
            code, tensor = "validation", result.unused[0]
            text = "no parameter takes these tensors of the file; the module was left as it was (allow_unused(True) loads the others)"
        else:
            return
        result.applied = []
        error = errors.make(code, f"{text}: {result}", path=self._path)
        error.tensor = tensor
        error.result = result
        raise error

    def __repr__(self) -> str:
        where = "in memory" if self._path is None else repr(self._path)
        return f"<{type(self).__name__} {where}>"
