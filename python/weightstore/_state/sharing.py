"""Which arrays or tensors overlap in memory, and how they are saved so that they overlap again when they are loaded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

# The start of memory that is saved for several tensors; no element type needs a larger multiple.
ALIGNMENT = 16


class Extent(NamedTuple):
    """The memory of one array or tensor.

    memory: equal for those that can overlap: the same device and storage.
    begin, end: its bytes.
    alignment: the bytes that its position must be a multiple of.
    can_own: it is row-major, so that views of it can be made after it was loaded.
    value: the array or tensor.
    """

    memory: Hashable
    begin: int
    end: int
    alignment: int
    can_own: bool
    value: Any


class Group(NamedTuple):
    """Extents that overlap, transitively.

    owner: one that covers all the others, which become views of it; None if there is no such extent. Then the bytes from
        `begin` to `end` are saved, and all of them become views of these.
    """

    members: list[Extent]
    owner: Extent | None
    begin: int
    end: int


def groups(extents: Iterable[Extent]) -> list[Group]:
    """Those that overlap with another one, in groups."""
    by_memory: dict[Hashable, list[Extent]] = {}
    for extent in extents:
        if extent.begin < extent.end:
            by_memory.setdefault(extent.memory, []).append(extent)
    found: list[list[Extent]] = []
    for members in by_memory.values():
        members.sort(key=lambda extent: extent.begin)
        reach = -1
        for extent in members:
            if extent.begin < reach:
                found[-1].append(extent)
            else:
                found.append([extent])
            reach = max(reach, extent.end)
    return [_group(members) for members in found if len(members) > 1]


def _group(members: list[Extent]) -> Group:
    begin, end = min(extent.begin for extent in members), max(extent.end for extent in members)
    for extent in members:
        covers = extent.can_own and extent.begin == begin and extent.end == end
        if covers and all((each.begin - begin) % each.alignment == 0 for each in members):
            return Group(members, extent, begin, end)
    return Group(members, None, begin, end)
