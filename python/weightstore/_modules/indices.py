"""Numbered name components without gaps."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

# As a 64-bit number is written; more digits are not a number but a name.
_INDEX = re.compile(r"\+?[0-9]{1,19}", re.ASCII)


def index_of(component: str) -> int | None:
    """The number a name component is, if it is one."""
    return int(component) if _INDEX.fullmatch(component) else None


def contiguous_names(names: Iterable[str], keep: Callable[[str], bool] | None = None) -> dict[str, str]:
    """Each name, and the name with its indices renumbered: at each place, which is known by the original text before it, the
    numbers that occur there become 0, 1, 2, ... in ascending order. `fc.0`, `fc.2`, `fc.4` become `fc.0`, `fc.1`, `fc.2`.

    keep: given the text before a number, without the dot: whether the numbers of this list stay. Lists inside it are asked
        about by themselves."""
    all_names = list(names)
    found: dict[str, set[int]] = {}
    for name in all_names:
        for prefix, index in _indices(name):
            found.setdefault(prefix, set()).add(index)
    ranks = {
        prefix: {index: str(rank) for rank, index in enumerate(sorted(indices))}
        for prefix, indices in found.items()
        if keep is None or not keep(prefix.removesuffix("."))
    }
    return {name: _renumber(name, ranks) for name in all_names}


def _indices(name: str) -> list[tuple[str, int]]:
    places = []
    start = 0
    for component in name.split("."):
        index = index_of(component)
        if index is not None:
            places.append((name[:start], index))
        start += len(component) + 1
    return places


def _renumber(name: str, ranks: dict[str, dict[int, str]]) -> str:
    components = name.split(".")
    start = 0
    for i, component in enumerate(components):
        index = index_of(component)
        new = None if index is None else ranks.get(name[:start])
        if index is not None and new is not None:
            components[i] = new[index]
        start += len(component) + 1
    return ".".join(components)
