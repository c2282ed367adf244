"""What a step holds: from what the caller gives to trees, tensors and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._checkpoints import arguments
from .._state.encode import Table, encode
from .random_state import RandomState

OWN = "rank"
"""The name of the entry under which tensors of `PerRank` entries are."""


class PerRank:
    """Marks an entry of a state that differs from rank to rank, such as the position of a data loader. Each rank saves its own, and
    gets it back if the number of ranks is the same."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"PerRank({self.value!r})"


@dataclass(slots=True)
class Contents:
    """common: the text of the tree of what all ranks have. own: that of this rank alone. tensors, own_tensors: by the names in the
    files; arrays of numpy among them. tables: by their names."""

    common: str
    own: str
    tensors: dict[str, Any]
    own_tensors: dict[str, Any]
    tables: dict[str, Any]


def contents_of(state: Mapping[str, Any], rank: int) -> Contents:
    """Raises InvalidArgument or TypeError, with the path, for what cannot be saved."""
    common, own = split(state)
    resolver = _Resolver()
    encoded = encode(common, resolver)
    encoded_own = encode({OWN: {rank: own}} if own else {}, resolver)
    return Contents(encoded.tree.text(), encoded_own.tree.text(), encoded.tensors, encoded_own.tensors, resolver.tables)


def split(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The entries that all ranks have, and those of this rank alone."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state of a run is a dict of name to what is saved, not {errors.typed(state)}")
    common, own = {}, {}
    for name, value in state.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of a state are str, and {name!r} is {errors.typed(name)}")
        if name == OWN:
            raise errors.make("invalid_argument", f"'{OWN}' is a name that weightstore uses; choose another")
        if isinstance(value, PerRank):
            own[name] = unwrapped(value.value)
        elif name == "rng" and value is True:
            own[name] = RandomState()
        else:
            common[name] = unwrapped(value)
    return common, own


def unwrapped(value: Any) -> Any:
    """The module inside DistributedDataParallel and torch.compile, which put a prefix before the names of all tensors."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.nn.Module):
        return value
    for inner in _layers(value):
        value = inner
    return value


def _layers(module: Any) -> Iterator[Any]:
    while True:
        parallel = getattr(sys.modules.get("torch.nn.parallel"), "DistributedDataParallel", ())
        replicated = getattr(sys.modules.get("torch.nn"), "DataParallel", ())
        if isinstance(module, (parallel, replicated)):
            module = module.module
        elif "_orig_mod" in getattr(module, "_modules", {}):
            module = module._orig_mod
        else:
            return
        yield module


def is_object(value: Any) -> bool:
    """Whether a value is saved as what its state_dict() returns."""
    return not isinstance(value, type) and callable(getattr(value, "state_dict", None))


def table_name(value: Any) -> str | None:
    """The name of a hash table; None for any other value."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(value, "hashtable_tag"):
        return None
    table = getattr(value, "script_object", value)
    return str(table.name()) if arguments.is_table(table) else None


class _Resolver:
    """Called with every value of a state. Collects the tables."""

    def __init__(self) -> None:
        self.tables: dict[str, Any] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return value
        name = table_name(value)
        if name is not None:
            if self.tables.setdefault(name, value) is not value:
                raise errors.make("invalid_argument", f"two tables of the state are called '{name}'")
            return Table(name)
        if is_object(value):
            return unwrapped(value).state_dict()
        if isinstance(value, PerRank):
            raise errors.make("invalid_argument", "PerRank marks an entry of the state, and cannot be inside one")
        return value


_PLAIN = (str, bytes, int, float, type(None), list, tuple, dict, set)
