"""From a tree and the tensors of a file to the state. Nothing that the tree says is run; what it says is checked."""

from __future__ import annotations

import collections
from collections.abc import Callable, Collection, Iterable
from typing import Any

from . import scalars, types
from .encode import FACTORIES
from .tree import REFERENCE, Tree, corrupt

# So many keys of one dict may have the same hash. A file that is made to have many more would take quadratic time.
_SAME_HASH = 100

Tensor = Callable[[int], Any]
"""Makes the array, tensor or table of a node, given by its number. Raises ValueError or KeyError."""


class Decoded:
    """What a tree describes, or the part of it that some of its nodes are, with all that these refer to."""

    def __init__(self, tree: Tree, tensor: Tensor, path: str, nodes: Collection[int] | None = None) -> None:
        """Raises FormatError, with the path of the file, if the tree was not made by encode()."""
        self._made: list[Any] = [None] * len(tree.nodes)
        self._path = path
        for number in range(len(tree.nodes)) if nodes is None else sorted(nodes):
            try:
                self._made[number] = _node(number, tree.nodes[number], self._made, tensor)
            except (ValueError, TypeError, RuntimeError, OverflowError, LookupError) as error:
                raise corrupt(path, f"node {number}: {error}") from None

    def value(self, encoded: Any) -> Any:
        """A value of the tree: the root, or one in a node."""
        try:
            return _value(encoded, self._made, len(self._made))
        except ValueError as error:
            raise corrupt(self._path, str(error)) from None


def _value(value: Any, made: list[Any], end: int) -> Any:
    """end: a reference must be to a node before this one."""
    if isinstance(value, list) and value[:1] == [REFERENCE]:
        return made[referred(value, end)]
    return scalars.decode(value)


def referred(reference: list[Any], end: int) -> int:
    """The number of the node that a reference names. Raises ValueError unless it is before `end`."""
    if len(reference) != 2 or type(reference[1]) is not int or not 0 <= reference[1] < end:
        raise ValueError(f"{reference[1:]!r} does not refer to a node before this one")
    return reference[1]


def reachable(tree: Tree, values: Iterable[Any], path: str) -> set[int]:
    """The numbers of the nodes that values of the tree refer to, and of those that these refer to. Raises FormatError."""
    found: set[int] = set()
    end = len(tree.nodes)
    waiting = [(value, end) for value in values]
    try:
        while waiting:
            value, end = waiting.pop()
            if isinstance(value, list) and value[:1] == [REFERENCE]:
                number = referred(value, end)
                if number not in found:
                    found.add(number)
                    waiting += [(part, number) for part in tree.nodes[number][1:] if isinstance(part, list)]
    except ValueError as error:
        raise corrupt(path, str(error)) from None
    return found


def _node(number: int, node: list[Any], made: list[Any], tensor: Tensor) -> Any:
    kind, rest = node[0], node[1:]
    if kind in ("list", "tuple"):
        items = [_value(item, made, number) for item in rest]
        return items if kind == "list" else tuple(items)
    if kind in ("set", "frozenset"):
        keys = _distinct([scalars.decode_key(item) for item in rest])
        return keys if kind == "set" else frozenset(keys)
    if kind == "dict":
        return _dict(rest, made, number)
    if kind == "Counter":
        return collections.Counter(_dict(rest, made, number))
    if kind == "OrderedDict":
        ordered = collections.OrderedDict(_dict(rest[1:], made, number))
        vars(ordered).update(_attributes(_value(rest[0], made, number)))
        return ordered
    if kind == "defaultdict":
        if rest[0] is not None and rest[0] not in FACTORIES:
            raise ValueError(f"{rest[0]!r} is not a factory")
        return collections.defaultdict(FACTORIES.get(rest[0]), _dict(rest[1:], made, number))
    if kind == "dataclass":
        return _dataclass(rest[0], _dict(rest[1:], made, number))
    if kind in ("tensor", "array", "table"):
        return tensor(number)
    if kind == "numbers":
        return _numbers(rest[0], tensor(number))
    if kind in ("long str", "long bytes"):
        data = tensor(number).tobytes()
        return data if kind == "long bytes" else data.decode("utf-8", "surrogatepass")
    raise ValueError(f"{kind!r} is not a kind of container")


def _dict(flat: list[Any], made: list[Any], end: int) -> dict[Any, Any]:
    return {key: _value(value, made, end) for key, value in pairs(flat).items()}


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
