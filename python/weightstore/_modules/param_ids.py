"""Burnpack's ids of parameters: numbers that stay with a parameter when it is renamed, saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from .. import errors
from .places import places_of

# On the module that owns the parameter, a dict of its parameters' names to ids: so ids survive .to(), copying and
# pickling of the module, and the replacement of the parameter itself.
_ATTRIBUTE = "_weightstore_param_ids"


def default_id(path: str) -> int:
    """The id of a parameter that was never given one: a hash of its path."""
    return int.from_bytes(blake2b(path.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def id_of(owner: Any, key: Any, path: str) -> int:
    ids = getattr(owner, _ATTRIBUTE, None)
    given = ids.get(key) if isinstance(ids, dict) else None
    return default_id(path) if given is None else given


def give_id(owner: Any, key: Any, param_id: int) -> None:
    """Remembers an id, where there is a place to: plain mappings have none."""
    if hasattr(owner, "_parameters"):
        owner.__dict__.setdefault(_ATTRIBUTE, {})[key] = param_id


def param_ids(module: Any) -> dict[str, int]:
    """Path to id, of all parameters and buffers of a module."""
    return {place.path: id_of(place.owner, place.key, place.path) for place in places_of(module)}


def set_param_ids(module: Any, ids: Mapping[str, int]) -> None:
    """Gives parameters of a torch.nn.Module ids, by their paths. Others keep theirs."""
    found = {place.path: place for place in places_of(module)}
    for path, param_id in ids.items():
        if path not in found:
            raise errors.make("not_found", "the module has no such parameter", tensor=path)
        if not isinstance(param_id, int) or not 0 <= param_id < 1 << 64:
            raise errors.make("invalid_argument", f"{param_id!r} is not a 64-bit unsigned number", tensor=path)
        if found[path].kind == "item":
            raise errors.make("invalid_argument", "only parameters of a torch.nn.Module have ids", tensor=path)
    for path, param_id in ids.items():
        give_id(found[path].owner, found[path].key, param_id)
