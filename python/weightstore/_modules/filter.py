"""Which tensors are meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from .. import errors
from .regex import Regex, compile_regex

_T = TypeVar("_T")

_SHOWN = 20

Predicate = Callable[[str, str], bool]
"""Called as predicate(path, container_path): "layers.0.weight", "Net.ModuleList.Linear"."""


class PathFilter:
    """Chooses tensors by their paths: a path matches when any criterion does. Without criteria nothing matches.

    Methods that add a criterion change the filter and return it.
    """

    __slots__ = ("_all", "_paths", "_predicates", "_regexes")

    def __init__(self) -> None:
        self._all = False
        self._regexes: list[Regex] = []
        self._paths: dict[str, None] = {}
        self._predicates: list[Predicate] = []

    # ---- making one ----------------------------------------------------------------------------------------------

    @classmethod
    def all(cls) -> PathFilter:
        """A filter that matches everything."""
        return cls().match_all()

    @classmethod
    def none(cls) -> PathFilter:
        """A filter without criteria, which matches nothing."""
        return cls()

    @classmethod
    def from_regex_patterns(cls, patterns: Iterable[str]) -> PathFilter:
        """The same as PathFilter().with_regexes(patterns)."""
        return cls().with_regexes(patterns)

    @classmethod
    def from_paths(cls, paths: Iterable[str]) -> PathFilter:
        """The same as PathFilter().with_full_paths(paths)."""
        return cls().with_full_paths(paths)

    @classmethod
    def from_predicate(cls, predicate: Predicate) -> PathFilter:
        """The same as PathFilter().with_predicate(predicate)."""
        return cls().with_predicate(predicate)

    def with_regex(self, pattern: str | re.Pattern[str]) -> PathFilter:
        """Adds a regular expression, searched for anywhere in the path. A bad one raises at once."""
        self._regexes.append(compile_regex(pattern))
        return self

    def with_regexes(self, patterns: Iterable[str | re.Pattern[str]]) -> PathFilter:
        """Adds several regular expressions, of which any may match."""
        self._regexes.extend([compile_regex(pattern) for pattern in _several(patterns)])
        return self

    def with_full_path(self, path: str) -> PathFilter:
        """Adds the whole path of a tensor."""
        self._paths[path] = None
        return self

    def with_full_paths(self, paths: Iterable[str]) -> PathFilter:
        """Adds the whole paths of several tensors."""
        self._paths.update(dict.fromkeys(_several(paths)))
        return self

    def with_predicate(self, predicate: Predicate) -> PathFilter:
        """Adds a function, called as predicate(path, container_path)."""
        if not callable(predicate):
            raise TypeError(f"a predicate is called as predicate(path, container_path); {predicate!r} cannot be called")
        self._predicates.append(predicate)
        return self

    def with_predicates(self, predicates: Iterable[Predicate]) -> PathFilter:
        """Adds several functions, of which any may match."""
        for predicate in predicates:
            self.with_predicate(predicate)
        return self

    def match_all(self) -> PathFilter:
        """Matches everything from now on, whatever the other criteria are."""
        self._all = True
        return self

    def or_(self, other: PathFilter) -> PathFilter:
        """A new filter that matches what either does; also written `one | other`."""
        union = self.clone()
        union._all |= other._all
        union._regexes += other._regexes
        union._paths.update(other._paths)
        union._predicates += other._predicates
        return union

    __or__ = or_

    def clone(self) -> PathFilter:
        """An independent copy."""
        copy = PathFilter()
        copy._all = self._all
        copy._regexes = list(self._regexes)
        copy._paths = dict(self._paths)
        copy._predicates = list(self._predicates)
        return copy

    def clear(self) -> PathFilter:
        """Removes all criteria."""
        self._all = False
        return self.clear_regex().clear_paths().clear_predicates()

    def clear_regex(self) -> PathFilter:
        """Removes the regular expressions."""
        self._regexes.clear()
        return self

    def clear_paths(self) -> PathFilter:
        """Removes the whole paths."""
        self._paths.clear()
        return self

    def clear_predicates(self) -> PathFilter:
        """Removes the functions."""
        self._predicates.clear()
        return self

    # ---- asking it -----------------------------------------------------------------------------------------------

    def matches(self, path: str, container_path: str | Sequence[str] = "") -> bool:
        """Whether a tensor is chosen. container_path: class names from the root to the owner, as a list or joined by dots."""
        if self._all or path in self._paths or any(regex.compiled.search(path) for regex in self._regexes):
            return True
        container = container_path if isinstance(container_path, str) else ".".join(container_path)
        return any(predicate(path, container) for predicate in self._predicates)

    def is_empty(self) -> bool:
        """Whether there are no criteria, so that nothing matches."""
        return self.criteria_count() == 0

    def criteria_count(self) -> int:
        """The number of criteria; 1 for a filter that matches everything."""
        return 1 if self._all else len(self._regexes) + len(self._paths) + len(self._predicates)

    def __repr__(self) -> str:
        if self._all:
            return "PathFilter.all()"
        if self.is_empty():
            return "PathFilter.none()"
        parts = [f"regex {regex.text!r}" for regex in self._regexes] + [f"path {path!r}" for path in self._paths]
        if self._predicates:
            parts.append(f"{len(self._predicates)} predicate{'s' if len(self._predicates) > 1 else ''}")
        return f"<PathFilter {' or '.join(parts)}>"


def nothing_matches(
    filter: PathFilter, paths: Sequence[str], what: str, with_variants: Sequence[str]
) -> errors.StoreError:
    """The error for a filter that leaves nothing of a module. what: "saved", "loaded". with_variants: paths that the filter
    would match if it saw enum variants."""
    begin = list(dict.fromkeys(path.partition(".")[0] for path in paths))
    shown = ", ".join(begin[:_SHOWN]) + (", ..." if len(begin) > _SHOWN else "")
    return errors.make(
        "invalid_argument",
        f"the filter matches none of the module's {len(paths)} tensors, so nothing would be {what}: {filter!r}; the module's "
        f"names begin with: {shown}"
        + (f". It sees no enum variants, so it does not match '{with_variants[0]}'" if with_variants else ""),
    )


def check_filter(filter: object) -> None:
    if filter is not None and not isinstance(filter, PathFilter):
        raise TypeError(f"a filter is a PathFilter, not {type(filter).__name__}")


def _several(items: Iterable[_T]) -> list[_T]:
    if isinstance(items, (str, bytes)):
        raise TypeError(f"expected several of them, not the single text {items!r}")
    return list(items)
