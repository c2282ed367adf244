"""Which tensors of a file are converted, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from re import Pattern

from .. import _core, errors
from .._modules.filter import PathFilter
from .._modules.remap import KeyRemapper

Patterns = str | Pattern[str] | Iterable[str | Pattern[str]]
Rules = Mapping[str, str] | Iterable[tuple[str | Pattern[str], str]] | KeyRemapper

_SHOWN = 10


class Names:
    """First only what is below `top_level_key` is kept, without the key. `include` and `exclude` see these names. Then `rename` is
    applied."""

    def __init__(
        self,
        top_level_key: str | None = None,
        include: Patterns | None = None,
        exclude: Patterns | None = None,
        rename: Rules | None = None,
    ) -> None:
        self._below = "" if top_level_key is None else top_level_key.removesuffix(".") + "."
        self._included = None if include is None else PathFilter().with_regexes(_several(include))
        self._excluded = PathFilter().with_regexes([] if exclude is None else _several(exclude))
        if rename is None or isinstance(rename, KeyRemapper):
            self._remapper = rename or KeyRemapper()
        else:
            self._remapper = KeyRemapper.from_patterns(rename.items() if isinstance(rename, Mapping) else rename)
        self.changes_nothing = top_level_key is None and include is None and exclude is None and not rename

    def new_name(self, name: str) -> str | None:
        """What a tensor shall be called; None if it is not converted."""
        if not name.startswith(self._below):
            return None
        inner = name[len(self._below) :]
        if self._included is not None and not self._included.matches(inner):
            return None
        return None if self._excluded.matches(inner) else self._remapper.rename(inner)

    def applied_to(self, reader: _core.Reader, path: str | None) -> tuple[_core.Reader, list[str]]:
        """The reader of the chosen tensors under their new names, and their names in the file, in the order of their data.
        Raises InvalidArgument if nothing is left, or two tensors would have one name."""
        before = reader.names_in_order()
        if self.changes_nothing:
            return reader, before
        after = [self.new_name(name) for name in before]
        pairs = [(number, name) for number, name in enumerate(after) if name is not None]
        if before and not pairs:
            raise self._nothing(before, path)
        return reader.renamed(pairs), [before[number] for number, _ in pairs]

    def _nothing(self, names: Sequence[str], path: str | None) -> errors.StoreError:
        begin = list(dict.fromkeys(name.partition(".")[0] for name in names))
        shown = ", ".join(map(repr, begin[:_SHOWN])) + (", ..." if len(begin) > _SHOWN else "")
        text = f"none of the {len(names)} tensors is chosen; their names begin with {shown}"
        return errors.make("invalid_argument", text, path=path)


def _several(patterns: Patterns) -> list[str | Pattern[str]]:
    return [patterns] if isinstance(patterns, (str, Pattern)) else list(patterns)
