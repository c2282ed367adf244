"""A step that is open for reading: its trees, and the tensors that they name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .. import errors
from .._checkpoints.loader import Loader
from .._files.progress import Progress
from .._files.source import OpenSource, Verify, open_source
from .._state import reading
from .._state.apply import Read
from .._state.decode import Decoded, pairs, reachable
from .._state.into import TypeAndShape
from .._state.stored import StoredTensor, stored_tensors
from .._state.tree import REFERENCE, Tree, corrupt
from .._tensors import frameworks
from . import step_files
from .contents import OWN


class OpenTree:
    """One of the trees of a step. entries: the values of the tree by their names."""

    def __init__(self, tree: Tree, entries: Mapping[str, Any], checkpoint: Checkpoint) -> None:
        self.tree = tree
        self.entries = entries
        self._checkpoint = checkpoint
        self._stored: dict[int, StoredTensor] = stored_tensors(tree, checkpoint.source.reader, checkpoint.path)

    def shown(self, number: int) -> TypeAndShape | None:
        """Type and shape of the tensor of a node."""
        stored = self._stored.get(number)
        return None if stored is None else stored.shown(self._checkpoint.source.reader)

    def value(self, name: str) -> Any:
        """An entry, in new memory."""
        path = self._checkpoint.path
        needed = reachable(self.tree, [self.entries[name]], path)
        decoded = Decoded(self.tree, self.reader({})(needed, {}).__getitem__, path, needed)
        return decoded.value(self.entries[name])

    def reader(self, tables: Mapping[str, Any], progress: Progress | None = None) -> Read:
        """tables: those that are loaded, by name."""
        checkpoint = self._checkpoint

        def read(nodes: Collection[int], targets: Mapping[int, list[Any]]) -> dict[int, Any]:
            stored = {number: self._stored[number] for number in nodes if number in self._stored}
            spread = {number: each[0] for number, each in targets.items() if frameworks.is_distributed(each[0])}
            plain = {number: each for number, each in stored.items() if number not in spread}
            values = reading.read_into(checkpoint.source, plain, targets, progress)
            named = {self._stored[number].name: value for number, value in spread.items() if number in stored}
            wanted = {name: tables[name] for name in _tables_among(self.tree, nodes) if name in tables}
            if named or wanted:
                Loader(checkpoint.path, wanted, named, strict=False, verify=checkpoint.verify).load()
            for number in spread:
                for other in targets[number][1:] if number in stored else ():
                    frameworks.copy_into(other, spread[number])
            for number in nodes:
                if self.tree.nodes[number][0] == "table":
                    values[number] = tables.get(self.tree.nodes[number][1])
            return values | {number: value for number, value in spread.items() if number in stored}

        return read


def _tables_among(tree: Tree, nodes: Collection[int]) -> list[str]:
    return [tree.nodes[number][1] for number in nodes if tree.nodes[number][0] == "table"]


class Checkpoint:
    """path: the directory, which must stay until this object is made."""

    def __init__(self, path: str, verify: Verify) -> None:
        self.path = path
        self.verify = verify
        self.step = step_files.read_step(path)
        state = step_files.read_state(path, self.step)
        self.source: OpenSource = open_source(path, backend="pread", verify=verify)
        self.common = OpenTree(state.common, _entries(state.common, state.common.root, path), self)
        self._own = state.own
        self._opened: dict[int, OpenTree] = {}

    def own(self, rank: int) -> OpenTree:
        """The tree of one of the ranks that saved."""
        if rank not in self._opened:
            tree = self._own[rank]
            outer = _entries(tree, tree.root, self.path)
            inner = _entries(tree, outer[OWN], self.path) if OWN in outer else {rank: None}
            entries = _entries(tree, inner[rank], self.path) if inner.get(rank) is not None else {}
            self._opened[rank] = OpenTree(tree, entries, self)
        return self._opened[rank]

    def of_ranks(self, name: str) -> list[Any]:
        trees = [self.own(rank) for rank in range(self.step.world)]
        if not any(name in tree.entries for tree in trees):
            known = sorted({each for tree in trees for each in tree.entries})
            text = f"'{name}' is not an entry that each rank has; those are: {', '.join(known) or 'none'}"
            raise errors.make("invalid_argument", text, path=self.path, format="checkpoint")
        return [tree.value(name) if name in tree.entries else None for tree in trees]


def _entries(tree: Tree, root: Any, path: str) -> dict[Any, Any]:
    """The values of a dict of the tree, by key."""
    try:
        number = root[1] if isinstance(root, list) and root[:1] == [REFERENCE] and len(root) == 2 else -1
        node = tree.nodes[number] if type(number) is int and 0 <= number < len(tree.nodes) else [""]
        if node[0] != "dict":
            raise ValueError("a state is not a dict")
        return pairs(node[1:])
    except ValueError as error:
        raise corrupt(path, str(error)) from None
