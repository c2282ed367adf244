"""Other names for tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from ._indices import contiguous_names
from ._regex import compile_regex

if TYPE_CHECKING:
    from ._snapshot import TensorSnapshot

_Match = re.Match[str]

# $$, ${anything}, $name: the longest run of letters, digits and underscores is the name.
_REFERENCE = re.compile(r"\$(?:(\$)|\{([^}]*)\}|([0-9A-Za-z_]+))")


class KeyRemapper:
    """An ordered list of rules (regular expression, replacement). Each rule is applied to what those before it have made,
    and replaces all its matches.

    A replacement refers to groups as `$1`, `${1}`, `$name` and `${name}`; `$$` is a dollar. Note that `$1_x` refers to a
    group called "1_x"; write `${1}_x`. Groups that do not exist, or did not take part, are empty.

    Methods that add a rule change the remapper and return it.
    """

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: list[tuple[re.Pattern[str], str, Callable[[_Match], str]]] = []

    @classmethod
    def from_patterns(cls, patterns: Iterable[tuple[str | re.Pattern[str], str]]) -> KeyRemapper:
        remapper = cls()
        for pattern, replacement in patterns.items() if isinstance(patterns, Mapping) else patterns:
            remapper.add_pattern(pattern, replacement)
        return remapper

    def add_pattern(self, pattern: str | re.Pattern[str], replacement: str) -> KeyRemapper:
        """Adds a rule. A bad regular expression raises at once."""
        if not isinstance(replacement, str):
            raise TypeError(f"a replacement is text, not {type(replacement).__name__}")
        self._rules.append((compile_regex(pattern), replacement, _expander(replacement)))
        return self

    def clone(self) -> KeyRemapper:
        copy = KeyRemapper()
        copy._rules = list(self._rules)
        return copy

    def is_empty(self) -> bool:
        return not self._rules

    def to_regex_pairs(self) -> list[tuple[re.Pattern[str], str]]:
        return [(pattern, replacement) for pattern, replacement, _ in self._rules]

    def rename(self, name: str) -> str:
        for pattern, _, expand in self._rules:
            name = _replace_all(pattern, expand, name)
        return name

    def remap(self, snapshots: Iterable[TensorSnapshot]) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
        """Renamed copies of all snapshots, in the same order, and their (new, original) names."""
        return _renamed(list(snapshots), self.rename)

    def __repr__(self) -> str:
        rules = ", ".join(f"{pattern.pattern!r} -> {replacement!r}" for pattern, replacement, _ in self._rules)
        return f"<KeyRemapper {rules or 'without rules'}>"


def map_indices_contiguous(
    snapshots: Iterable[TensorSnapshot],
) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
    """Copies whose numbered name components count 0, 1, 2, ... without gaps, and their (new, original) names."""
    originals = list(snapshots)
    names = contiguous_names([snapshot.full_path for snapshot in originals])
    return _renamed(originals, names.__getitem__)


def _renamed(
    snapshots: list[TensorSnapshot], rename: Callable[[str], str]
) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
    pairs = [(rename(snapshot.full_path), snapshot.full_path) for snapshot in snapshots]
    return [snapshot.renamed(new) for snapshot, (new, _) in zip(snapshots, pairs, strict=True)], pairs


def _expander(replacement: str) -> Callable[[_Match], str]:
    parts: list[str | tuple[int | str]] = []
    end = 0
    for reference in _REFERENCE.finditer(replacement):
        parts.append(replacement[end : reference.start()])
        dollar, braced, bare = reference.groups()
        if dollar is not None:
            parts.append("$")
        else:
            group = bare if braced is None else braced
            parts.append((int(group) if group.isascii() and group.isdigit() else group,))
        end = reference.end()
    parts.append(replacement[end:])

    def expand(match: _Match) -> str:
        return "".join(part if isinstance(part, str) else _group(match, part[0]) for part in parts)

    return expand


def _group(match: _Match, group: int | str) -> str:
    try:
        return match.group(group) or ""
    except IndexError:
        return ""


def _replace_all(pattern: re.Pattern[str], expand: Callable[[_Match], str], name: str) -> str:
    """As re.sub(), but without replacing the nothing right after a match: Rust's regex does not find it."""
    made = []
    end = 0
    previous = -1
    for match in pattern.finditer(name):
        if match.start() == match.end() == previous:
            continue
        made += [name[end : match.start()], expand(match)]
        end = previous = match.end()
    return "".join(made) + name[end:] if made else name
