"""Other names for tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from .. import errors
from .indices import contiguous_names
from .regex import Regex, compile_regex

if TYPE_CHECKING:
    from .snapshot import TensorSnapshot

_Match = re.Match[str]

# $$, ${anything}, $name: the longest run of letters, digits and underscores is the name. Also a brace that stays open.
_REFERENCE = re.compile(r"\$(?:(\$)|\{([^}]*)\}|([0-9A-Za-z_]+)|(\{))")


class KeyRemapper:
    """An ordered list of rules (regular expression, replacement). Each rule is applied to what those before it have made,
    and replaces all its matches.

    A replacement refers to groups as `$1`, `${1}`, `$name` and `${name}`; `$$` is a dollar. A group that did not take part in
    the match is empty.

    A rule that would make wrong names is an error. `$1_x` refers to a group called "1_x": write `${1}_x`. A backslash means
    nothing in a replacement: write `$1` instead of `\\1`, and `.` instead of `\\.`.

    Methods that add a rule change the remapper and return it.
    """

    __slots__ = ("_rules",)

    def __init__(self) -> None:
        self._rules: list[tuple[Regex, str, Callable[[_Match], str]]] = []

    @classmethod
    def from_patterns(cls, patterns: Iterable[tuple[str | re.Pattern[str], str]]) -> KeyRemapper:
        """A remapper with these rules: pairs of pattern and replacement, or a mapping."""
        remapper = cls()
        for pattern, replacement in patterns.items() if isinstance(patterns, Mapping) else patterns:
            remapper.add_pattern(pattern, replacement)
        return remapper

    def add_pattern(self, pattern: str | re.Pattern[str], replacement: str) -> KeyRemapper:
        """Adds a rule. A bad regular expression or replacement raises at once."""
        if not isinstance(replacement, str):
            raise TypeError(f"a replacement is text, not {type(replacement).__name__}")
        regex = compile_regex(pattern)
        self._rules.append((regex, replacement, _expander(replacement, regex)))
        return self

    def clone(self) -> KeyRemapper:
        """An independent copy."""
        copy = KeyRemapper()
        copy._rules = list(self._rules)
        return copy

    def is_empty(self) -> bool:
        """Whether there are no rules."""
        return not self._rules

    def to_regex_pairs(self) -> list[tuple[re.Pattern[str], str]]:
        """The rules, with the patterns compiled by Python's `re`."""
        return [(regex.compiled, replacement) for regex, replacement, _ in self._rules]

    def rename(self, name: str) -> str:
        """The name that the rules make of a name."""
        for regex, _, expand in self._rules:
            name = _replace_all(regex.compiled, expand, name)
        return name

    def remap(self, snapshots: Iterable[TensorSnapshot]) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
        """Renamed copies of all snapshots, in the same order, and their (new, original) names."""
        return _renamed(list(snapshots), self.rename)

    def __repr__(self) -> str:
        rules = ", ".join(f"{regex.text!r} -> {replacement!r}" for regex, replacement, _ in self._rules)
        return f"<KeyRemapper {rules or 'without rules'}>"


def map_indices_contiguous(
    snapshots: Iterable[TensorSnapshot],
) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
    """Copies whose numbered name components count 0, 1, 2, ... without gaps, and their (new, original) names."""
    return map_indices_contiguous_except(snapshots, lambda _: False)


def map_indices_contiguous_except(
    snapshots: Iterable[TensorSnapshot], keep: Callable[[str], bool]
) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
    """As map_indices_contiguous(), but lists for which keep(prefix) is true keep their numbers. A prefix is the original name up
    to the number, without the dot: "flows" for `flows.2.weight`. Lists inside a list are asked about by themselves."""
    originals = list(snapshots)
    names = contiguous_names([snapshot.full_path for snapshot in originals], keep)
    return _renamed(originals, names.__getitem__)


def _renamed(
    snapshots: list[TensorSnapshot], rename: Callable[[str], str]
) -> tuple[list[TensorSnapshot], list[tuple[str, str]]]:
    pairs = [(rename(snapshot.full_path), snapshot.full_path) for snapshot in snapshots]
    return [snapshot.renamed(new) for snapshot, (new, _) in zip(snapshots, pairs, strict=True)], pairs


def _expander(replacement: str, regex: Regex) -> Callable[[_Match], str]:
    if "\\" in replacement:
        raise _bad(replacement, "a backslash means nothing there; write $1 for a group, and '.' for a dot")
    parts: list[str | tuple[int | str]] = []
    end = 0
    for reference in _REFERENCE.finditer(replacement):
        parts.append(replacement[end : reference.start()])
        dollar, braced, bare, unclosed = reference.groups()
        if dollar is not None:
            parts.append("$")
        elif unclosed is not None:
            raise _bad(replacement, "the brace after '$' is not closed; write $$ for a dollar")
        else:
            text = bare if braced is None else braced
            group = int(text) if text.isascii() and text.isdigit() else text
            _check_group(replacement, regex, group, reference[0])
            parts.append((group,))
        end = reference.end()
    parts.append(replacement[end:])

    def expand(match: _Match) -> str:
        return "".join(part if isinstance(part, str) else match.group(part[0]) or "" for part in parts)

    return expand


def _check_group(replacement: str, regex: Regex, group: int | str, reference: str) -> None:
    pattern = regex.compiled
    if group in pattern.groupindex or (isinstance(group, int) and group <= pattern.groups):
        return
    numbers = [f"${number}" for number in range(1, pattern.groups + 1)]
    known = ", ".join(["$0", *numbers, *(f"${name}" for name in pattern.groupindex)])
    why = f"{reference} refers to group {group!r}, which {regex.text!r} does not have; it has {known}"
    # The longest group that the text begins with is most probably meant.
    text = str(group)
    begins = [name for name in (*map(str, range(pattern.groups + 1)), *pattern.groupindex) if text.startswith(name)]
    if isinstance(group, str) and begins and not reference.startswith("${"):
        meant = max(begins, key=len)
        why += f". Write ${{{meant}}}{text[len(meant) :]}"
    raise _bad(replacement, f"{why}. $$ is a dollar")


def _bad(replacement: str, why: str) -> errors.StoreError:
    return errors.make("invalid_argument", f"the replacement {replacement!r}: {why}")


def _replace_all(pattern: re.Pattern[str], expand: Callable[[_Match], str], name: str) -> str:
    """As re.sub(), except for empty matches: as in Rust, there is none right after another match, and what follows an empty
    match is searched from the next character on."""
    made = []
    start = 0
    end = -1  # of the match before
    copied = 0
    while start <= len(name) and (match := pattern.search(name, start)) is not None:
        if match.end() == match.start() == end:
            start += 1
            continue
        made += [name[copied : match.start()], expand(match)]
        start = end = copied = match.end()
    return "".join(made) + name[copied:]
