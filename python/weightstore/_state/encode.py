"""From a state to a tree and the tensors of a file."""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .. import errors
from .._tensors import frameworks
from . import scalars, types
from .naming import Names, Path, shown
from .sharing import groups
from .tree import LONGEST_BYTES, LONGEST_NUMBERS, REFERENCE, NotAScalar, Tree

# What a defaultdict may call for a key that it does not have.
FACTORIES: dict[str, Any] = {
    cls.__name__: cls for cls in (int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset)
}
_KEY = object()  # marks a child that is a key of its dict, or an element of its set
_PUSHED = object()


class Table(NamedTuple):
    """Stands for a hash table of embeddings in a state. Its rows are not in the tensors of the state."""

    name: str


class Encoded(NamedTuple):
    """tensors: what the file holds, by name: arrays of numpy and tensors of torch."""

    tree: Tree
    tensors: dict[str, Any]


class _Frame(NamedTuple):
    """A container whose children are being encoded."""

    node: list[Any]
    children: Iterator[tuple[Any, Any]]
    value: Any
    path: Path


class _Leaf(NamedTuple):
    """An array or tensor, and its node, which gets its name and options once all of them are known."""

    node: list[Any]
    value: Any
    path: Path


def encode(state: Any, resolve: Callable[[Any], Any] | None = None) -> Encoded:
    """Raises InvalidArgument, with the path of the value, for what cannot be saved.

    resolve: returns what takes the place of a value: the state of an object, a Table, or the value itself. With it the state may
        have DTensors: each is one tensor of the tree, whichever part of it this process has.
    """
    return _Encoder(resolve).run(state)


class _Encoder:
    def __init__(self, resolve: Callable[[Any], Any] | None) -> None:
        self.resolve = resolve
        # What resolve() made, of which nobody else knows.
        self.resolved: list[Any] = []
        self.nodes: list[list[Any]] = []
        self.leaves: list[_Leaf] = []
        self.tensors: dict[str, Any] = {}
        self.names = Names()
        # By id(). The state keeps them alive.
        self.index_of: dict[int, int] = {}
        self.open: set[int] = set()
        self.frames: list[_Frame] = []

    def run(self, state: Any) -> Encoded:
        root = self._value(state, None)
        while self.frames:
            frame = self.frames[-1]
            for child, part in frame.children:
                path = (frame.path, part)
                encoded = self._key(child, frame.path) if part is _KEY else self._value(child, path)
                if encoded is _PUSHED:
                    break
                frame.node.append(encoded)
            else:
                self.frames.pop()
                self.open.discard(id(frame.value))
                reference = self._add(frame.value, frame.node)
                if self.frames:
                    self.frames[-1].node.append(reference)
                else:
                    root = reference
        self._place_leaves()
        return Encoded(Tree(self.nodes, root), self.tensors)

    # ---- values --------------------------------------------------------------------------------------------------

    def _value(self, value: Any, path: Path) -> Any:
        """Its form in the tree; _PUSHED if its children come first."""
        if self.resolve is not None:
            resolved = self.resolve(value)
            if resolved is not value:
                self.resolved.append(resolved)
                value = resolved
        if id(value) in self.index_of:
            return [REFERENCE, self.index_of[id(value)]]
        kind = type(value)
        if kind is Table:
            return self._add(value, ["table", value.name])
        if kind in (bytes, str) and len(value) > LONGEST_BYTES:
            return self._long_text(value, path)
        if kind in (list, tuple, set, frozenset) and len(value) > LONGEST_NUMBERS:
            numbers = _numbers(value)
            if numbers is not None:
                return self._add(value, ["numbers", kind.__name__, self._store(path, numbers)])
        if kind in _CONTAINERS or (dataclasses.is_dataclass(kind) and types.name_of(kind) is not None):
            return self._push(value, path)
        if frameworks.is_tensor(value) or _is_array(value):
            return self._leaf(value, path)
        try:
            return scalars.encode(value)
        except NotAScalar as error:
            raise _refused(value, path, str(error)) from None

    def _key(self, value: Any, path: Path) -> Any:
        try:
            return scalars.encode_key(value)
        except NotAScalar as error:
            raise _refused(value, (path, "(key)"), str(error)) from None

    def _add(self, value: Any, node: list[Any]) -> list[Any]:
        self.nodes.append(node)
        self.index_of[id(value)] = len(self.nodes) - 1
        return [REFERENCE, len(self.nodes) - 1]

    def _push(self, value: Any, path: Path) -> Any:
        if id(value) in self.open:
            raise errors.make("invalid_argument", f"the state contains itself at '{shown(path)}'; a tree has no cycles")
        self.open.add(id(value))
        make = _CONTAINERS.get(type(value), _dataclass)
        node, children = make(value, path)
        self.frames.append(_Frame(node, children, value, path))
        return _PUSHED

    def _long_text(self, value: str | bytes, path: Path) -> Any:
        import numpy as np

        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return self._add(value, [f"long {type(value).__name__}", self._store(path, np.frombuffer(data, np.uint8))])

    def _store(self, path: Path, value: Any) -> str:
        name = self.names.take(path)
        self.tensors[name] = value
        return name

    # ---- arrays and tensors --------------------------------------------------------------------------------------

    def _leaf(self, value: Any, path: Path) -> Any:
        problem = _library(value).refusal(value)
        if problem is not None and not (self.resolve is not None and frameworks.is_distributed(value)):
            raise _refused(value, path, problem)
        leaf = _Leaf(["tensor" if frameworks.is_tensor(value) else "array"], value, path)
        self.leaves.append(leaf)
        return self._add(value, leaf.node)

    def _place_leaves(self) -> None:
        """Decides what the file holds for each array and tensor, those that share memory once."""
        leaf_of = {id(leaf.value): leaf for leaf in self.leaves}
        names = {id(leaf.value): self.names.take(leaf.path) for leaf in self.leaves}
        views: set[int] = set()
        here = [leaf.value for leaf in self.leaves if not frameworks.is_distributed(leaf.value)]
        for group in groups(_library(value).extent(value) for value in here):
            members = [leaf_of[id(extent.value)] for extent in group.members]
            begin = group.begin
            if group.owner is not None:
                base_name = names[id(group.owner.value)]
            else:
                first = members[0]
                base_name = self.names.take((first.path, "storage"))
                self.tensors[base_name], begin = _library(first.value).bytes_between(
                    first.value, group.begin, group.end
                )
            for leaf in members:
                if group.owner is None or leaf.value is not group.owner.value:
                    leaf.node.extend([base_name, _library(leaf.value).view_options(leaf.value, begin)])
                    views.add(id(leaf.value))
        for leaf in self.leaves:
            if id(leaf.value) not in views:
                value, options = _library(leaf.value).stored(leaf.value)
                self.tensors[names[id(leaf.value)]] = value
                leaf.node.extend([names[id(leaf.value)], *([options] if options else [])])


def _library(value: Any) -> Any:
    if frameworks.is_tensor(value):
        from . import tensors

        return tensors
    from . import arrays

    return arrays


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def _refused(value: Any, path: Path, hint: str) -> errors.StoreError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    text = f"'{shown(path)}' is a {kind}, which a state cannot hold"
    if dataclasses.is_dataclass(type(value)) and not hint:
        hint = "call weightstore.register_state_type() with its class"
    return errors.make("invalid_argument", f"{text}: {hint}" if hint else text)


def _numbers(values: Any) -> Any:
    """The elements as an array, if all of them are numbers of one type that files have."""
    kinds = set(map(type, values))
    if len(kinds) != 1 or not kinds <= {int, float, bool}:
        return None
    import numpy as np

    (kind,) = kinds
    for dtype in (np.int64, np.uint64) if kind is int else (np.dtype(kind),):
        try:
            return np.fromiter(values, dtype, len(values))
        except OverflowError:
            continue
    return None


# ---- containers: the beginning of the node, and the children with the parts of their paths -----------------------------


def _items(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    return [type(value).__name__], ((item, index) for index, item in enumerate(value))


def _elements(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    return [type(value).__name__], ((item, _KEY) for item in value)


def _pairs_of(value: Any) -> Iterator[tuple[Any, Any]]:
    for key, item in value.items():
        yield key, _KEY
        yield item, key


def _dict(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    return [type(value).__name__], _pairs_of(value)


def _ordered(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    """An OrderedDict can have attributes: torch keeps the versions of modules in that of a state_dict."""

    def children() -> Iterator[tuple[Any, Any]]:
        yield vars(value) or None, "(attributes)"
        yield from _pairs_of(value)

    return ["OrderedDict"], children()


def _defaultdict(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    factory = value.default_factory
    name = None if factory is None else getattr(factory, "__name__", "")
    if name is not None and FACTORIES.get(name) is not factory:
        raise _refused(value, path, f"its factory {factory!r} is not one of {', '.join(FACTORIES)}")
    return ["defaultdict", name], _pairs_of(value)


def _dataclass(value: Any, path: Path) -> tuple[list[Any], Iterator[tuple[Any, Any]]]:
    def children() -> Iterator[tuple[Any, Any]]:
        for field in dataclasses.fields(value):
            yield field.name, _KEY
            yield getattr(value, field.name), field.name

    return ["dataclass", types.name_of(type(value))], children()


_CONTAINERS: dict[type, Callable[[Any, Path], tuple[list[Any], Iterator[tuple[Any, Any]]]]] = {
    list: _items,
    tuple: _items,
    set: _elements,
    frozenset: _elements,
    dict: _dict,
    collections.Counter: _dict,
    collections.OrderedDict: _ordered,
    collections.defaultdict: _defaultdict,
}
