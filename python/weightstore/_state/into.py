"""Which tensor of a file goes into which that is there already."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from .. import _core, errors
from .._tensors import frameworks
from . import decode
from .naming import Path, shown
from .stored import StoredTensor
from .tree import REFERENCE, Tree

_SHOWN = 20  # problems that an error lists
_DICTS = {"dict": 1, "Counter": 1, "OrderedDict": 2, "defaultdict": 2, "dataclass": 2}  # where the pairs begin


class _Found(NamedTuple):
    """A tensor that is there, for the node of a number.

    strict: it is an error if type or shape differ. Otherwise the tensor is left alone."""

    number: int
    value: Any
    path: Path
    strict: bool


class Plan:
    """Compares a state with memory that shall hold it.

    targets: the arrays or tensors for a node, by the number of the node.
    objects: what has a load_state_dict(), and the value of the tree for it.
    """

    def __init__(self, tree: Tree, stored: dict[int, StoredTensor], into: Any) -> None:
        self.targets: dict[int, list[Any]] = {}
        self.objects: list[tuple[Any, Any]] = []
        self._tree = tree
        self._stored = stored
        self._found: list[_Found] = []
        self._problems: list[str] = []
        self._waiting: list[tuple[Any, Any, Path, bool]] = [(tree.root, into, None, True)]
        while self._waiting:
            self._compare(*self._waiting.pop())

    def check(self, reader: _core.Reader, path: str) -> None:
        """Raises ValidationError, which lists all that does not fit."""
        for found in self._found:
            expected = self._stored[found.number].shown(reader)
            actual = type_and_shape(found.value)
            if actual == expected:
                self.targets.setdefault(found.number, []).append(found.value)
            elif found.strict:
                self._problems.append(f"'{shown(found.path)}' is {_text(*actual)}, but {_text(*expected)} in the file")
        if self._problems:
            lines = sorted(self._problems)
            more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
            text = "\n  ".join(["the state does not fit into what was given:", *lines[:_SHOWN], *more])
            raise errors.make("validation", text, path=path)

    # ---- the walk --------------------------------------------------------------------------------------------------

    def _compare(self, encoded: Any, into: Any, path: Path, strict: bool) -> None:
        """strict: what the file does not have is a problem. An optimizer replaces all of its state, and needs none of it."""
        number = encoded[1] if isinstance(encoded, list) and encoded[:1] == [REFERENCE] else None
        node = self._tree.nodes[number] if type(number) is int and 0 <= number < len(self._tree.nodes) else None
        if frameworks.is_tensor(into) or _is_array(into):
            if number in self._stored and node is not None and node[0] in ("tensor", "array"):
                self._found.append(_Found(number, into, path, strict))
            elif strict:
                self._problems.append(f"'{shown(path)}' is a tensor, but not in the file")
        elif hasattr(into, "load_state_dict") and hasattr(into, "state_dict"):
            self.objects.append((into, encoded))
            is_module = _is_module(into)
            self._compare_dicts(node, into.state_dict(), path, is_module, is_module)
        elif isinstance(into, Mapping):
            self._compare_dicts(node, into, path, strict, False)
        elif isinstance(into, (list, tuple)):
            self._compare_lists(node, into, path, strict)

    def _compare_dicts(
        self, node: list[Any] | None, into: Mapping[Any, Any], path: Path, strict: bool, is_exact: bool
    ) -> None:
        if node is None or node[0] not in _DICTS:
            if strict and into:
                self._problems.append(f"'{shown(path)}' is a dict, but not in the file")
            return
        found = decode.pairs(node[_DICTS[node[0]] :])
        for key, value in into.items():
            if key in found:
                self._waiting.append((found[key], value, (path, key), strict))
            elif strict:
                self._problems.append(f"'{shown((path, key))}' is not in the file")
        if is_exact:
            extra = [key for key in found if key not in into]
            self._problems += [f"'{shown((path, key))}' is in the file, but not in the module" for key in extra]

    def _compare_lists(self, node: list[Any] | None, into: Any, path: Path, strict: bool) -> None:
        if node is None or node[0] not in ("list", "tuple"):
            # Numbers and other plain values need no memory.
            if strict and any(frameworks.is_tensor(item) or _is_array(item) for item in into):
                self._problems.append(f"'{shown(path)}' is a list of tensors, but not in the file")
            return
        for index, (value, item) in enumerate(zip(node[1:], into, strict=False)):
            self._waiting.append((value, item, (path, index), strict))
        if strict and len(into) > len(node) - 1:
            self._problems.append(f"'{shown(path)}' has {len(into)} items, but {len(node) - 1} in the file")


def type_and_shape(value: Any) -> tuple[str, tuple[int, ...]]:
    """As StoredTensor.shown() tells them."""
    return str(value.dtype), tuple(value.shape)


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)
