"""From a tree and the tensors of a file to the state. Nothing that the tree says is run; what it says is checked."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from . import scalars, types
from .encode import FACTORIES
from .tree import REFERENCE, Tree, corrupt

# So many keys of one dict may have the same hash. A file that is made to have many more would take quadratic time.
_SAME_HASH = 100

Tensor = Callable[[int], Any]
"""Makes the array or tensor of a node, given by its number. Raises ValueError."""


class Decoded:
    """What a tree describes."""

    def __init__(self, tree: Tree, tensor: Tensor, path: str) -> None:
        """Raises FormatError, with the path of the file, if the tree was not made by encode()."""
        self._made: list[Any] = []
        self._path = path
        for number, node in enumerate(tree.nodes):
            try:
                self._made.append(_node(number, node, self._made, tensor))
            except (ValueError, TypeError, RuntimeError, OverflowError, IndexError) as error:
                raise corrupt(path, f"node {number}: {error}") from None
        self.root = self.value(tree.root)

    def value(self, encoded: Any) -> Any:
        """A value of the tree: the root, or one in a node."""
        try:
            return _value(encoded, self._made)
        except ValueError as error:
            raise corrupt(self._path, str(error)) from None


def _value(value: Any, made: list[Any]) -> Any:
    if isinstance(value, list) and value[:1] == [REFERENCE]:
        if len(value) != 2 or type(value[1]) is not int or not 0 <= value[1] < len(made):
            raise ValueError(f"{value[1:]!r} does not refer to a node before this one")
        return made[value[1]]
    return scalars.decode(value)


def _node(number: int, node: list[Any], made: list[Any], tensor: Tensor) -> Any:
    kind, rest = node[0], node[1:]
    if kind in ("list", "tuple"):
        items = [_value(item, made) for item in rest]
        return items if kind == "list" else tuple(items)
    if kind in ("set", "frozenset"):
        keys = _distinct([scalars.decode_key(item) for item in rest])
        return keys if kind == "set" else frozenset(keys)
    if kind == "dict":
        return _dict(rest, made)
    if kind == "Counter":
        return collections.Counter(_dict(rest, made))
    if kind == "OrderedDict":
        ordered = collections.OrderedDict(_dict(rest[1:], made))
        vars(ordered).update(_attributes(_value(rest[0], made)))
        return ordered
    if kind == "defaultdict":
        if rest[0] is not None and rest[0] not in FACTORIES:
            raise ValueError(f"{rest[0]!r} is not a factory")
        return collections.defaultdict(FACTORIES.get(rest[0]), _dict(rest[1:], made))
    if kind == "dataclass":
        return _dataclass(rest[0], _dict(rest[1:], made))
    if kind in ("tensor", "array"):
        return tensor(number)
    if kind == "numbers":
        return _numbers(rest[0], tensor(number))
    if kind in ("long str", "long bytes"):
        data = tensor(number).tobytes()
        return data if kind == "long bytes" else data.decode("utf-8", "surrogatepass")
    raise ValueError(f"{kind!r} is not a kind of container")


def _dict(flat: list[Any], made: list[Any]) -> dict[Any, Any]:
    return {key: _value(value, made) for key, value in pairs(flat).items()}


def pairs(flat: list[Any]) -> dict[Any, Any]:
    """Keys to values as the tree has them, of a list in which they follow each other. Raises ValueError."""
    if len(flat) % 2:
        raise ValueError("a key has no value")
    keys = [scalars.decode_key(key) for key in flat[::2]]
    _distinct(keys)
    return dict(zip(keys, flat[1::2], strict=True))


def _distinct(keys: list[Any]) -> set[Any]:
    hashes = collections.Counter(map(hash, keys))
    if hashes and hashes.most_common(1)[0][1] > _SAME_HASH:
        raise ValueError(f"more than {_SAME_HASH} keys have the same hash")
    found = set(keys)
    if len(found) != len(keys):
        raise ValueError("a key is there twice")
    return found


def _attributes(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError("attributes are not a dict")
    return value


def _dataclass(name: Any, fields: dict[Any, Any]) -> Any:
    cls = types.type_of(name)
    if cls is None:
        raise ValueError(f"the type {name!r} is not registered; call weightstore.register_state_type() with its class")
    return types.make_dataclass(cls, fields)


def _numbers(kind: Any, array: Any) -> Any:
    sequences: dict[Any, Callable[[list[Any]], Any]] = {
        "list": list,
        "tuple": tuple,
        "set": set,
        "frozenset": frozenset,
    }
    if kind not in sequences or array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ValueError(f"a {kind!r} of numbers cannot be made of {array.dtype} {list(array.shape)}")
    return sequences[kind](array.tolist())
