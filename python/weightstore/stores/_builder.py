"""The builder methods all stores share. Each changes the store and returns it."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, Self

from .. import errors
from .._files.paths import check_local
from .._files.progress import Progress, check_progress
from .._files.source import Verify, check_verify, kind_of
from .._modules.adapters import ModuleAdapter, as_adapter
from .._modules.apply.plan import DTypePolicy, check_policy
from .._modules.filter import PathFilter, Predicate, check_filter
from .._modules.layers import LayerTypes, Types, make_layer_types
from .._modules.regex import Regex, compile_regex
from .._modules.remap import KeyRemapper


class Builder(ABC):
    """Options of a store."""

    _format: str  # of the files it keeps
    Error: ClassVar[type[errors.StoreError]]
    """The class of all errors about files of this store: SafetensorsStore.Error is SafetensorsError."""

    def __init__(self) -> None:
        self._filter: PathFilter | None = None
        self._remapper = KeyRemapper()
        self._from_adapter: ModuleAdapter | None = None
        self._from_types: LayerTypes | None = None
        self._top_level_key: str | None = None
        self._allow_partial = False
        self._allow_unused = True
        self._filter_missing = False
        self._validate = True
        # None: as stores of the file's format do.
        self._skip_enum_variants: bool | None = None
        self._map_indices: bool | Literal["auto"] | None = None
        self._kept_indices: list[Regex] = []
        self._dtype_policy: DTypePolicy | None = None
        self._zero_copy = False
        self._verify: Verify = "off"
        self._auto_extension = False
        self._progress: Progress | bool | None = None

    @abstractmethod
    def _changed(self) -> Self:
        """Called after an option that the parsed file depends on."""

    @contextmanager
    def _placing(self) -> Iterator[None]:
        """Makes every error of this package one of the store's format as well."""
        try:
            yield
        except errors.StoreError as error:
            placed = errors.placed(error, self._format, again=True)
            if placed is error:
                raise
            raise placed.with_traceback(error.__traceback__) from error.__cause__

    # ---- filtering -----------------------------------------------------------------------------------------------

    def _filtered(self) -> PathFilter:
        if self._filter is None:
            self._filter = PathFilter()
        return self._filter

    def with_filter(self, filter: PathFilter | None) -> Self:
        """Replaces the filter; None removes it. A filter that matches none of the module's tensors, such as an empty one, is an
        error when the store saves or loads."""
        check_filter(filter)
        self._filter = None if filter is None else filter.clone()
        return self

    def with_regex(self, pattern: str | re.Pattern[str]) -> Self:
        """Also tensors whose names contain a match. Filters see the names of the module, not those of the file."""
        with self._placing():
            self._filtered().with_regex(pattern)
        return self

    def with_regexes(self, patterns: Iterable[str | re.Pattern[str]]) -> Self:
        """Also tensors whose names contain a match of any of these."""
        with self._placing():
            self._filtered().with_regexes(patterns)
        return self

    def with_full_path(self, path: str) -> Self:
        """Also the tensor of this name."""
        self._filtered().with_full_path(path)
        return self

    def with_full_paths(self, paths: Iterable[str]) -> Self:
        """Also the tensors of these names."""
        self._filtered().with_full_paths(paths)
        return self

    def with_predicate(self, predicate: Predicate) -> Self:
        """Also tensors for which predicate(path, container_path) is true; a container path is "Net.ModuleList.Linear"."""
        self._filtered().with_predicate(predicate)
        return self

    def with_predicates(self, predicates: Iterable[Predicate]) -> Self:
        """Also tensors for which any of these is true."""
        self._filtered().with_predicates(predicates)
        return self

    def match_all(self) -> Self:
        """All tensors, whatever was said before."""
        self._filtered().match_all()
        return self

    # ---- names ---------------------------------------------------------------------------------------------------

    def with_key_remapping(self, pattern: str | re.Pattern[str], replacement: str) -> Self:
        """Renames tensors: of the file when loading, of the module when saving. See KeyRemapper."""
        with self._placing():
            self._remapper.add_pattern(pattern, replacement)
        return self._changed()

    with_remap_pattern = with_key_remapping

    def remap(self, remapper: KeyRemapper) -> Self:
        """Replaces all rules for renaming."""
        if not isinstance(remapper, KeyRemapper):
            raise TypeError(f"rules for renaming are a KeyRemapper, not {type(remapper).__name__}")
        self._remapper = remapper.clone()
        return self._changed()

    def with_top_level_key(self, key: str) -> Self:
        """Only what is below this name, without it: with "state_dict", `state_dict.fc.weight` is `fc.weight`. May have
        several components. Saving puts everything below it."""
        if not isinstance(key, str):
            raise TypeError(f"a key is text, not {type(key).__name__}")
        self._top_level_key = key
        return self._changed()

    def skip_enum_variants(self, skip: bool) -> Self:
        """Whether to pass over enum variants: components in CamelCase, between the first and the last of a name.

        Loading passes over a variant that only the file or only the module has. The other side must have no variant in the
        same place, and the variant must be alone in its place. Saving leaves all such components out. Filters and
        predicates see the module's names without the variants that are passed over or left out."""
        self._skip_enum_variants = bool(skip)
        return self

    def map_indices_contiguous(self, map: bool | Literal["auto"]) -> Self:
        """Whether loading closes gaps in numbered names: `fc.0, fc.2, fc.4` becomes `fc.0, fc.1, fc.2`.

        "auto" leaves the names as they are, and matches a list in order if one side counts 0, 1, 2, ..., the other side has
        gaps between its elements, and both have as many elements."""
        if map not in (True, False, "auto"):
            raise errors.make(
                "invalid_argument",
                f"map_indices_contiguous is {map!r}; it is True, False or 'auto'",
                format=self._format,
            )
        self._map_indices = map
        return self._changed()

    def map_indices_contiguous_except(self, pattern: str | re.Pattern[str]) -> Self:
        """While indices are mapped, lists whose prefix contains a match keep their numbers. May be called several times.

        A prefix is a name of the file up to a number, after remapping and without the dot: `flows` for `flows.2.weight`, so
        `^flows$` keeps this list alone. A list inside it, `flows.2.layers`, has a prefix of its own."""
        with self._placing():
            self._kept_indices.append(compile_regex(pattern))
        return self._changed()

    def auto_extension(self, enable: bool) -> Self:
        """Whether a path without an ending gets the format's."""
        self._auto_extension = bool(enable)
        return self._changed()

    # ---- values --------------------------------------------------------------------------------------------------

    def with_from_adapter(self, adapter: ModuleAdapter | type[ModuleAdapter], *, types: Types | None = None) -> Self:
        """Changes tensors on their way from the file into a module.

        types: the types of the module's layers, for an adapter that needs them and a module that does not have them (a dict of
        arrays): {"fc": "Linear", "layers.[0-9]+.norm": "LayerNorm"}. A pattern matches the whole path of a layer: the name
        of a tensor without its last component. The first pattern that matches counts; None is a layer that the adapter leaves
        as it is. Every layer needs a type.
        """
        made = as_adapter(adapter)
        with self._placing():
            self._from_types = make_layer_types(types, made)
        self._from_adapter = made
        return self

    def dtype_policy(self, policy: DTypePolicy) -> Self:
        """What happens where types differ on loading: "cast" converts to the parameter's, "strict" is an error, "adopt" takes
        the file's. Unless set, another kind (integers for a parameter of floats) is an error; of the same kind it is "adopt"
        where the adapter changed the type, else "cast"."""
        with self._placing():
            self._dtype_policy = check_policy(policy)
        return self

    def zero_copy(self, enable: bool) -> Self:
        """Whether loaded tensors are views of the mapped file, or of the given bytes, instead of copies. numpy's are
        read-only, torch's are copy-on-write; torch gets copies where the source is not a file."""
        self._zero_copy = bool(enable)
        return self._changed()

    # ---- strictness ----------------------------------------------------------------------------------------------

    def verify(self, verify: Verify) -> Self:
        """When loading compares the checksums that the file has with what it reads: "off" never; "lazy" when a tensor is first
        read; "full" before anything else, and then a tensor without a checksum is an error. False is "off", True is "full".
        """
        with self._placing():
            self._verify = check_verify(verify)
        return self._changed()

    def allow_partial(self, allow: bool) -> Self:
        """Whether parameters may be missing from the file."""
        self._allow_partial = bool(allow)
        return self

    def filter_missing(self, enable: bool) -> Self:
        """Whether a filter makes parameters optional: one that it leaves out is skipped then, even if the file lacks it."""
        self._filter_missing = bool(enable)
        return self

    def allow_unused(self, allow: bool) -> Self:
        """Whether the file may hold tensors that no parameter takes. Tensors that the filter leaves out are not meant."""
        self._allow_unused = bool(allow)
        return self

    def validate(self, validate: bool) -> Self:
        """Whether tensors that do not fit are an error. Otherwise they are only reported."""
        self._validate = bool(validate)
        return self

    def progress(self, progress: Progress | bool | None) -> Self:
        """A callable(done, total, name), in bytes, that may return False to cancel; True for a tqdm bar."""
        check_progress(progress)
        self._progress = progress
        return self


def extension_of(name: str) -> str | None:
    """The ending of a file name: what follows its last dot, unless that is its first character."""
    stem, dot, ending = name.rpartition(".")
    return ending if dot and stem else None


def as_path(path: Any) -> str:
    if kind_of(path) != "path":
        raise TypeError(f"a path is a str or an os.PathLike, not {errors.typed(path)}; from_bytes() takes contents")
    text = os.fsdecode(path)
    check_local(text, "store")
    return text
