"""The nodes of a tree that stand for tensors of the file."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import _core
from .._files import loading
from .._files.progress import Progress
from .tree import Tree, corrupt

# The kinds of nodes that name a tensor, and where in the node the name is.
_NAME_AT = {"tensor": 1, "array": 1, "long str": 1, "long bytes": 1, "numbers": 2}


class StoredTensor(NamedTuple):
    """framework: "torch" or "numpy".
    number: of the tensor in the file.
    options: how the file's tensor becomes that of the state.
    """

    framework: str
    name: str
    number: int
    options: dict[str, Any]

    @property
    def is_view(self) -> bool:
        """Whether it is a view of the file's tensor, which others can share."""
        return "view" in self.options

    @property
    def is_plain(self) -> bool:
        """Whether the file's tensor is that of the state, but for its strides."""
        return not {"view", "dtype"} & self.options.keys()

    def shown(self, reader: _core.Reader) -> tuple[str, tuple[int, ...]]:
        """Type and shape in the state, in the words of the framework. Raises ValueError."""
        _, dtype, shape, _ = reader.describe(self.number)
        if self.framework == "torch":
            from . import tensors

            return tensors.shown(dtype, shape, self.options)
        from . import arrays

        return arrays.shown(dtype, shape, self.options)


def stored_tensors(tree: Tree, reader: _core.Reader, path: str) -> dict[int, StoredTensor]:
    """By the numbers of their nodes. Raises FormatError if a node is not one that encode() makes.

    A tensor of the file is that of one node, and others are views of it: otherwise a small file could ask for many copies.
    """
    found: dict[int, StoredTensor] = {}
    frameworks: dict[str, str] = {}
    owned: set[str] = set()
    for number, node in enumerate(tree.nodes):
        if node[0] not in _NAME_AT:
            continue
        position = _NAME_AT[node[0]]
        name, options = (*node[position : position + 2], {})[:2] if len(node) > position else (None, {})
        if not isinstance(name, str) or not isinstance(options, dict) or len(node) > position + 2:
            raise corrupt(path, f"node {number}: '{node[0]}' has a name and options")
        index = reader.find(name)
        if index is None:
            raise corrupt(path, f"node {number} names the tensor '{name}', which the file does not have")
        stored = StoredTensor("torch" if node[0] == "tensor" else "numpy", name, index, options)
        if frameworks.setdefault(name, stored.framework) != stored.framework:
            raise corrupt(path, f"node {number}: tensor '{name}' is of torch and of numpy")
        if not stored.is_view:
            if name in owned:
                raise corrupt(path, f"node {number}: tensor '{name}' is that of another node, too")
            owned.add(name)
        found[number] = stored
    return found


def read(reader: _core.Reader, tensors: list[StoredTensor], progress: Progress | None) -> dict[str, Any]:
    """The tensors of the file, by name, in new memory."""
    loaded: dict[str, Any] = {}
    for framework in ("torch", "numpy"):
        numbers = sorted({tensor.number for tensor in tensors if tensor.framework == framework})
        if numbers:
            loaded |= loading.load(reader, numbers, framework, progress)
    return loaded


def restored(stored: StoredTensor, loaded: Any) -> Any:
    """The tensor of the state, made of that of the file. Raises ValueError."""
    if stored.framework == "torch":
        from . import tensors

        return tensors.restored(loaded, stored.options)
    from . import arrays

    return arrays.restored(loaded, stored.options)
