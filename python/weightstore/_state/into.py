"""Compares a state of a file with what shall hold it: memory, modules, optimizers, and other objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from .. import errors
from .._tensors import frameworks
from . import decode
from .naming import Path, shown
from .tree import REFERENCE, Tree

_SHOWN = 20  # problems that an error lists
_DICTS = {"dict": 1, "Counter": 1, "OrderedDict": 2, "defaultdict": 2, "dataclass": 2}  # where the pairs begin

TypeAndShape = tuple[str, tuple[int, ...]]


class Choice(NamedTuple):
    """What of the modules is loaded, and under which names.

    strict: a tensor of a module that the file does not have is an error, and so is one of the file that the module does not have.
    rename: the name in the module of a name in the file.
    wants: whether a tensor of a module is loaded, by its name in the module.
    suggest: a sentence about names that do not fit, or None: of the file's tensors and the module's, with their shapes.
    table: the name of a hash table; None for any other value.
    """

    strict: bool = True
    rename: Callable[[str], str] | None = None
    wants: Callable[[str], bool] | None = None
    suggest: Callable[[Mapping[str, Any], Mapping[str, Any]], str | None] | None = None
    table: Callable[[Any], str | None] = lambda value: None


class Object(NamedTuple):
    """Something with load_state_dict(), and the value of the tree for it. names: for a module, from the name in the module to that
    in the file."""

    target: Any
    encoded: Any
    names: dict[str, str] | None = None


class _Found(NamedTuple):
    """A tensor that is there, for the node of a number.

    strict: it is an error if type or shape differ. Otherwise the tensor is left alone."""

    number: int
    value: Any
    path: Path
    strict: bool


class Plan:
    """targets: the arrays or tensors for a node, by the number of the node.
    in_place: modules, and torch's optimizers, whose tensors are among the targets.
    others: all other objects. Only they know what they do with a state.
    values: what is no object: containers and tensors, as the tree has them. What they hold is among the targets.
    tables: hash tables, by the name in the file.
    """

    def __init__(self, tree: Tree, shown_tensors: Callable[[int], TypeAndShape | None], choice: Choice) -> None:
        """shown_tensors: the type and shape of the tensor of a node; None if the node is none."""
        self.targets: dict[int, list[Any]] = {}
        self.in_place: list[Object] = []
        self.others: list[Object] = []
        self.values: list[Any] = []
        self.tables: dict[str, Any] = {}
        self._tree = tree
        self._shown = shown_tensors
        self._choice = choice
        self._found: list[_Found] = []
        self._problems: list[str] = []
        self._waiting: list[tuple[Any, Any, Path, bool]] = []

    def add(self, encoded: Any, into: Any, path: Path = None) -> None:
        """Compares a value of the tree with what shall hold it."""
        if not is_object(into):
            self.values.append(encoded)
        self._waiting.append((encoded, into, path, True))
        while self._waiting:
            self._compare(*self._waiting.pop())

    def missing(self, path: Path, hint: str = "") -> None:
        """The file does not have what shall be loaded."""
        self._problems.append(f"'{shown(path)}' is not in the file{hint}")

    def compare(self) -> None:
        """Compares types and shapes."""
        for found in self._found:
            expected, actual = self._shown(found.number), type_and_shape(found.value)
            if actual == expected:
                self.targets.setdefault(found.number, []).append(found.value)
            elif found.strict and expected is not None:
                self._problems.append(f"'{shown(found.path)}' is {_text(*actual)}, but {_text(*expected)} in the file")
        self._found = []

    def check(self, file: str, also: Iterable[Plan] = ()) -> None:
        """Raises ValidationError, which lists all that does not fit, also of other plans."""
        problems = {problem for plan in (self, *also) for problem in plan._problems}
        if problems:
            lines = sorted(problems)
            more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
            text = "\n  ".join(["the state does not fit into what was given:", *lines[:_SHOWN], *more])
            raise errors.make("validation", text, path=file)

    # ---- the walk --------------------------------------------------------------------------------------------------

    def _compare(self, encoded: Any, into: Any, path: Path, strict: bool) -> None:
        """strict: what the file does not have is a problem. An optimizer replaces all of its state, and needs none of it."""
        number = encoded[1] if isinstance(encoded, list) and encoded[:1] == [REFERENCE] else None
        node = self._tree.nodes[number] if type(number) is int and 0 <= number < len(self._tree.nodes) else None
        table = self._choice.table(into)
        if table is not None:
            self._compare_table(node, into, path, table)
        elif frameworks.is_tensor(into) or _is_array(into):
            if node is not None and node[0] in ("tensor", "array"):
                self._found.append(_Found(encoded[1], into, path, strict))
            elif strict:
                self._problems.append(f"'{shown(path)}' is a tensor, but not in the file")
        elif is_object(into):
            self._compare_object(encoded, node, into, path)
        elif isinstance(into, Mapping):
            self._compare_dict(node, into, path, strict)
        elif isinstance(into, (list, tuple)):
            self._compare_lists(node, into, path, strict)

    def _compare_object(self, encoded: Any, node: list[Any] | None, into: Any, path: Path) -> None:
        if _is_module(into) and _loads_as(into, "torch.nn", "Module"):
            names = self._compare_module(node, into, path)
            self.in_place.append(Object(into, encoded, names))
        elif _loads_as(into, "torch.optim", "Optimizer"):
            self._compare_optimizer(node, into, path)
            self.in_place.append(Object(into, encoded))
        else:
            self.others.append(Object(into, encoded))

    def _compare_module(self, node: list[Any] | None, module: Any, path: Path) -> dict[str, str] | None:
        stored = self._pairs(node)
        # The parameters themselves: a module that copies what was read into them copies nothing.
        there = module.state_dict(keep_vars=True)
        if stored is None:
            self._problems.append(f"'{shown(path)}' is a module, but not in the file")
            return None
        choice = self._choice
        names: dict[str, str] = {}
        for name in stored:
            renamed = choice.rename(name) if choice.rename and isinstance(name, str) else name
            if names.setdefault(renamed, name) != name:
                self._problems.append(f"'{shown((path, names[renamed]))}' and '{name}' are both renamed to '{renamed}'")
        wanted = {name: value for name, value in there.items() if choice.wants is None or choice.wants(name)}
        if there and not wanted:
            self._problems.append(f"the filter matches no tensor of '{shown(path)}'")
        absent = [name for name in wanted if name not in names]
        extra = [name for name in names if name not in there and (choice.wants is None or choice.wants(name))]
        if choice.strict:
            self._problems += [f"'{shown((path, name))}' is not in the file" for name in absent]
            self._problems += [
                f"'{shown((path, names[name]))}' is in the file, but not in the module" for name in extra
            ]
        if choice.suggest is not None and absent and extra and (choice.strict or len(absent) == len(wanted)):
            hint = choice.suggest(
                {name: self._shape(stored[names[name]]) for name in extra}, {name: wanted[name] for name in absent}
            )
            self._problems += [hint] if hint else []
        if wanted and len(absent) == len(wanted) and not choice.strict:
            self._problems.append(f"the file has no tensor of '{shown(path)}'")
        for name, value in wanted.items():
            if name in names:
                self._waiting.append((stored[names[name]], value, (path, name), True))
        return {name: names[name] for name in wanted if name in names}

    def _shape(self, encoded: Any) -> tuple[int, ...] | None:
        described = self._shown(encoded[1]) if isinstance(encoded, list) and encoded[:1] == [REFERENCE] else None
        return None if described is None else described[1]

    def _compare_optimizer(self, node: list[Any] | None, optimizer: Any, path: Path) -> None:
        """What load_state_dict() of torch's optimizers refuses."""
        stored = self._pairs(node) or {}
        groups = self._items(stored.get("param_groups"))
        if groups is None or "state" not in stored:
            self._problems.append(f"'{shown(path)}' is an optimizer, but not in the file")
            return
        groups_there = optimizer.param_groups
        if len(groups) != len(groups_there):
            self._problems.append(
                f"'{shown(path)}' has {len(groups_there)} groups of parameters, but {len(groups)} in the file"
            )
        for index, (group, own) in enumerate(zip(groups, groups_there, strict=False)):
            count = self._length((self._pairs(self._node(group)) or {}).get("params"))
            if count != len(own["params"]):
                place = shown((((path, "param_groups"), index), "params"))
                self._problems.append(f"'{place}' has {len(own['params'])} parameters, but {count} in the file")
        there = optimizer.state_dict()
        self._compare_dict(node, there, path, False)
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for index, state in (self._pairs(self._node(stored["state"])) or {}).items():
            if type(index) is int and 0 <= index < len(parameters) and index not in there["state"]:
                self._spread_state(state, parameters[index], (((path, "state"), index), ""))

    def _spread_state(self, state: Any, parameter: Any, path: Path) -> None:
        """What the file has for a parameter that is a DTensor becomes DTensors, if it has the shape of the parameter."""
        if not frameworks.is_distributed(parameter):
            return
        for encoded in (self._pairs(self._node(state)) or {}).values():
            described = self._shown(encoded[1]) if self._node(encoded) is not None else None
            if described is not None and described[1] == tuple(parameter.shape):
                torch = sys.modules["torch"]
                dtype = getattr(torch, described[0].removeprefix("torch."))
                with torch.no_grad():
                    target = torch.empty_like(parameter.detach(), dtype=dtype)
                self._found.append(_Found(encoded[1], target, path, False))

    def _compare_table(self, node: list[Any] | None, table: Any, path: Path, name: str) -> None:
        if node is None or node[0] != "table":
            self._problems.append(f"'{shown(path)}' is a table, but not in the file")
        elif node[1] != name:
            self._problems.append(f"'{shown(path)}' is the table '{name}', but '{node[1]}' in the file")
        else:
            self.tables[name] = table

    def _compare_dict(self, node: list[Any] | None, into: Mapping[Any, Any], path: Path, strict: bool) -> None:
        found = self._pairs(node)
        if found is None:
            if strict and into:
                self._problems.append(f"'{shown(path)}' is a dict, but not in the file")
            return
        for key, value in into.items():
            if key in found:
                self._waiting.append((found[key], value, (path, key), strict))
            elif strict:
                self._problems.append(f"'{shown((path, key))}' is not in the file")

    def _compare_lists(self, node: list[Any] | None, into: Any, path: Path, strict: bool) -> None:
        if node is None or node[0] not in ("list", "tuple"):
            # Numbers and other plain values need no memory.
            if strict and any(frameworks.is_tensor(item) or _is_array(item) or is_object(item) for item in into):
                self._problems.append(f"'{shown(path)}' is a list of tensors, but not in the file")
            return
        for index, (value, item) in enumerate(zip(node[1:], into, strict=False)):
            self._waiting.append((value, item, (path, index), strict))
        if strict and len(into) > len(node) - 1:
            self._problems.append(f"'{shown(path)}' has {len(into)} items, but {len(node) - 1} in the file")

    # ---- looking into the tree -------------------------------------------------------------------------------------

    def _node(self, encoded: Any) -> list[Any] | None:
        if isinstance(encoded, list) and encoded[:1] == [REFERENCE]:
            return self._tree.nodes[decode.referred(encoded, len(self._tree.nodes))]
        return None

    def _pairs(self, node: list[Any] | None) -> dict[Any, Any] | None:
        return decode.pairs(node[_DICTS[node[0]] :]) if node is not None and node[0] in _DICTS else None

    def _items(self, encoded: Any) -> list[Any] | None:
        node = self._node(encoded)
        return node[1:] if node is not None and node[0] in ("list", "tuple") else None

    def _length(self, encoded: Any) -> int:
        """Of a list; a long one of numbers is a tensor."""
        node = self._node(encoded)
        if node is not None and node[0] == "numbers":
            described = self._shown(encoded[1])
            return described[1][0] if described is not None and len(described[1]) == 1 else 0
        return len(self._items(encoded) or ())


def roots_of(objects: Iterable[Object]) -> list[Any]:
    return [each.encoded for each in objects]


def type_and_shape(value: Any) -> TypeAndShape:
    """As StoredTensor.shown() tells them."""
    return str(value.dtype), tuple(value.shape)


def _text(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_object(value: Any) -> bool:
    """Whether a value takes a state by itself."""
    return hasattr(value, "load_state_dict") and hasattr(value, "state_dict")


def _is_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def _loads_as(value: Any, package: str, name: str) -> bool:
    """Whether the load_state_dict() of an object is that of torch's own class."""
    cls = getattr(sys.modules.get(package), name, None)
    return cls is not None and isinstance(value, cls) and type(value).load_state_dict is cls.load_state_dict
