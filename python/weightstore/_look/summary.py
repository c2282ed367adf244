"""What a file amounts to: totals, shares of the element types, the largest tensors, and a tree of its modules.

    file = weightstore.open("model.safetensors")
    summary = summarize(file)          # reads no data: a set of 100 GB takes as long as its headers
    summary.totals.parameters          # 8_030_261_248
    summary.dtypes[0].dtype            # "BF16", the type with most bytes
    for child in summary.tree.children:
        print(child.name, child.totals.nbytes)

All values are plain data, and `summary.as_dict()` is what `weightstore inspect --json` prints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._files.entries.scalars import scalars_of
from .._files.formats import FORMATS
from .._files.source import OpenSource

if TYPE_CHECKING:
    from .._files.file import File

ALL_LEVELS = 2**31
"""As `depth`: all modules and all tensors."""


class Totals(NamedTuple):
    """parameters: elements of all tensors. nbytes: their bytes in the file."""

    tensors: int
    parameters: int
    nbytes: int


class Share(NamedTuple):
    """What the tensors of one element type amount to."""

    dtype: str
    totals: Totals


class Tensor(NamedTuple):
    """What the header says about a tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class Node:
    """A module or a tensor of the tree.

    name: the last part of the path; "" for the root.
    path: the whole dotted name.
    is_tensor: a tensor, which has no children. A tensor and a module may have the same path.
    totals: of the tensor, or of all tensors below.
    dtypes: the element types below, by name.
    children: in the order of their names, with numbers in them compared as numbers ("9" before "10"). Empty for a module that
        is as deep as the tree was asked for.
    """

    __slots__ = ("children", "dtypes", "is_tensor", "name", "path", "totals")

    def __init__(self, path: str, name: str, is_tensor: bool, totals: Totals, dtypes: tuple[str, ...]) -> None:
        self.path = path
        self.name = name
        self.is_tensor = is_tensor
        self.totals = totals
        self.dtypes = dtypes
        self.children: list[Node] = []

    def walk(self) -> Iterator[tuple[int, Node]]:
        """This node and all below it, each with its depth: 0 for this one."""
        pending = [(0, self)]
        while pending:
            depth, node = pending.pop()
            yield depth, node
            pending.extend((depth + 1, child) for child in reversed(node.children))

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with the children inside."""
        made: dict[int, dict[str, Any]] = {}
        for _, node in self.walk():
            kind = "tensor" if node.is_tensor else "module"
            made[id(node)] = {
                "name": node.name,
                "path": node.path,
                "kind": kind,
                **node.totals._asdict(),
                "dtypes": list(node.dtypes),
                "children": [],
            }
        for _, node in self.walk():
            made[id(node)]["children"] = [made[id(child)] for child in node.children]
        return made[id(self)]

    def __repr__(self) -> str:
        return f"<Node {self.path!r}, {self.totals.tensors} tensors, {len(self.children)} children>"


class Summary(NamedTuple):
    """path: as the file was opened; None for contents in memory.
    format: "safetensors" (also for a set of shards), "burnpack", "pytorch", ...; title: the name that people write.
    version: what the format says about its own version, such as "0.22" (the oldest Burn that reads the file); "" for most.
    files: the files that hold the tensors: one, or the shards of a set, each with its size in bytes.
    totals: of all tensors.
    dtypes: the types with most bytes first.
    largest: the tensors with most bytes.
    metadata, scalars, left_out: as in `File`; of a list in the metadata, what it is and how long.
    tree: the root, whose totals are those of the file.
    """

    path: str | None
    format: str
    title: str
    version: str
    files: tuple[tuple[str, int], ...]
    totals: Totals
    dtypes: tuple[Share, ...]
    largest: tuple[Tensor, ...]
    metadata: dict[str, Any]
    scalars: dict[str, int | float | bool]
    left_out: tuple[tuple[str, str, str], ...]
    tree: Node

    def as_dict(self) -> dict[str, Any]:
        """Plain data: for JSON."""
        return {
            "path": self.path,
            "format": self.format,
            "version": self.version,
            "files": [{"path": path, "size": size} for path, size in self.files],
            **self.totals._asdict(),
            "dtypes": [{"dtype": share.dtype, **share.totals._asdict()} for share in self.dtypes],
            "largest": [tensor._asdict() for tensor in self.largest],
            "metadata": self.metadata,
            "scalars": dict(self.scalars),
            "left_out": [{"name": name, "type": type, "reason": why} for name, type, why in self.left_out],
            "tree": self.tree.as_dict(),
        }


def summarize(file: File | OpenSource, *, depth: int = 2, largest: int = 5) -> Summary:
    """Summarizes an open file, a set or a checkpoint. Reads headers only, and takes about a microsecond a tensor.

    depth: how many levels of the tree to make; 0 for the root alone, ALL_LEVELS for everything.
    largest: how many of the largest tensors to name.
    """
    if isinstance(file, OpenSource):
        source = file
    else:
        from .._files.file import source_of  # which brings in handles; the command needs none

        source = source_of(file)
    reader = source.reader
    totals, dtypes, numbers, nodes = _core.outline(reader, depth=depth, largest=largest)
    return Summary(
        path=source.path,
        format=source.format,
        title=FORMATS[source.format].title,
        version=reader.dialect,
        files=tuple((path, _size(path)) for path in _core.files(reader)),
        totals=Totals(*totals),
        dtypes=tuple(Share(dtype, Totals(*share)) for dtype, share in dtypes),
        largest=tuple(Tensor(*reader.describe(number)) for number in numbers),
        metadata=_metadata(reader),
        scalars=dict(scalars_of(reader)),
        left_out=tuple(reader.left_out()),
        tree=_tree(Totals(*totals), tuple(dtype for dtype, _ in dtypes), nodes),
    )


def _tree(
    totals: Totals, dtypes: tuple[str, ...], nodes: list[tuple[str, bool, int, tuple[int, int, int], tuple[str, ...]]]
) -> Node:
    root = Node("", "", False, totals, dtypes)
    modules = {("", 0): root}
    # By depth, so that a module is there before what it holds: the order of paths has "a-b" between "a" and "a.b".
    for path, is_tensor, depth, numbers, types in sorted(nodes, key=lambda node: node[2]):
        owner, _, name = path.rpartition(".") if depth > 1 else ("", "", path)
        node = Node(path, name, is_tensor, Totals(*numbers), types)
        modules[owner, depth - 1].children.append(node)
        if not is_tensor:
            modules[path, depth] = node
    for module in modules.values():
        module.children.sort(key=lambda node: _natural(node.name))
    return root


_DIGITS = re.compile(r"([0-9]{1,18})")


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """For sorting: numbers inside a name count as numbers, and come before letters."""
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in _DIGITS.split(name) if part)


def _metadata(reader: _core.Reader) -> dict[str, Any]:
    if reader.typed_metadata() is None:
        return reader.metadata() or {}
    from .._files.entries.metadata import brief, metadata_of  # which takes a while, and only GGUF needs it

    return brief(metadata_of(reader))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
