"""What a module holds. A module is a torch.nn.Module or a mapping of arrays and tensors; both may be nested."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import errors
from .._tensors.frameworks import is_lazy, is_tensor
from .packed_layers import Packed
from .snapshot import HOLDERS, TensorSnapshot

NO_LAYER = ""


@dataclass(slots=True)
class Place:
    """One tensor of a module, and where it is held."""

    path: str
    containers: tuple[str, ...]
    # The class of the layer it belongs to; for a subclass of a torch.nn class that class. None: not known. NO_LAYER: none that
    # adapters know.
    layer: str | None
    value: Any
    owner: Any
    key: Any
    kind: str  # "parameter", "buffer" (of an nn.Module) or "item" (of a mapping or sequence)
    packed: Packed | None = None  # of a layer that torch.nn packs and Burn does not


def is_torch_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(value, torch.nn.Module)


def places_of(module: Any) -> list[Place]:
    """All tensors of a module, depth first: parameters, then buffers, then children, in the order of their declaration."""
    if not (is_torch_module(module) or isinstance(module, Mapping)):
        raise TypeError(f"a module is a torch.nn.Module or a mapping of arrays and tensors, not {errors.typed(module)}")
    return list(_walk(module, (), (), None))


def _walk(holder: Any, path: tuple[str, ...], above: tuple[str, ...], layer: str | None) -> Iterator[Place]:
    containers = (*above, type(holder).__name__)
    if is_torch_module(holder):
        own = layer_name(type(holder))
        yield from _walk_module(holder, path, containers, layer if own in HOLDERS and layer is not None else own)
        return
    for key, value in holder.items() if isinstance(holder, Mapping) else enumerate(holder):
        here = (*path, _component(key, path))
        if value is None:
            continue
        if is_torch_module(value) or isinstance(value, (Mapping, list, tuple)):
            yield from _walk(value, here, containers, layer)
        else:
            known = value._layer if isinstance(value, TensorSnapshot) else layer
            yield Place(".".join(here), containers, known, value, holder, key, "item")


def _walk_module(module: Any, path: tuple[str, ...], containers: tuple[str, ...], layer: str | None) -> Iterator[Place]:
    transient = module._non_persistent_buffers_set
    for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
        for key, value in tensors.items():
            if value is not None and not (kind == "buffer" and key in transient):
                yield Place(".".join((*path, key)), containers, layer, value, module, key, kind)
    for key, child in module._modules.items():
        if child is not None:
            yield from _walk(child, (*path, key), containers, layer)


class Gathered(NamedTuple):
    """What places_of() finds, in lists: the paths, the values, and who holds each under which key."""

    paths: list[str]
    values: list[Any]
    owners: list[tuple[Any, str]]


def gather(module: Any) -> Gathered | None:
    """None for a mapping that has other keys than text. The values of a mapping may be anything: mappings, too."""
    found = Gathered([], [], [])
    if is_torch_module(module):
        _gather(module, "", *found)
    elif isinstance(module, Mapping) and all(isinstance(key, str) for key in module):
        _gather_tensors(module, module, "", *found)
    else:
        return None
    return found


def _gather(module: Any, prefix: str, paths: list[str], values: list[Any], owners: list[tuple[Any, str]]) -> None:
    _gather_tensors(module, module._parameters, prefix, paths, values, owners)
    transient = module._non_persistent_buffers_set
    buffers = module._buffers
    if transient:
        buffers = {key: value for key, value in buffers.items() if key not in transient}
    _gather_tensors(module, buffers, prefix, paths, values, owners)
    for key, child in module._modules.items():
        if child is not None:
            _gather(child, f"{prefix}{key}.", paths, values, owners)


def _gather_tensors(
    owner: Any,
    tensors: Mapping[str, Any],
    prefix: str,
    paths: list[str],
    values: list[Any],
    owners: list[tuple[Any, str]],
) -> None:
    for key, value in tensors.items():
        if value is not None:
            paths.append(prefix + key)
            values.append(value)
            owners.append((owner, key))


def layer_name(cls: type) -> str:
    """The name of the torch.nn class that a class is, or derives from; else its own."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return cls.__name__
    nn = torch.nn
    known = (base.__name__ for base in cls.__mro__ if getattr(nn, base.__name__, None) is base is not nn.Module)
    return next(known, cls.__name__)


def _component(key: Any, path: tuple[str, ...]) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    where = f"under '{'.'.join(path)}'" if path else "at the root"
    raise TypeError(f"names of tensors are made of str and int keys; there is {key!r} {where}")


def can_replace(place: Place) -> bool:
    return place.kind != "item" or isinstance(place.owner, (MutableMapping, list))


def reason_not_loadable(place: Place) -> str | None:
    """What keeps a place from being loaded into, if anything does."""
    value = place.value
    if is_tensor(value):
        from .._tensors.torch_memory import has_ordinary_memory, why_no_memory, why_not_dense

        if has_ordinary_memory(value):
            return None
        gets_memory = is_lazy(value) or value.device.type == "meta"
        problem = why_not_dense(value) if gets_memory else why_no_memory(value)
        return None if problem is None else f"cannot be loaded: its tensor {problem}"
    if not isinstance(value, (np.ndarray, np.generic)):
        return f"cannot be loaded into {errors.typed(value)}"
    if not can_replace(place) and not (isinstance(value, np.ndarray) and value.flags.writeable):
        return f"the array is read-only, and {errors.typed(place.owner)} cannot hold another"
    return None


def replace(place: Place, value: Any) -> None:
    """Puts another tensor where the place's is."""
    if place.kind == "parameter":
        place.owner._parameters[place.key] = value
    elif place.kind == "buffer":
        place.owner._buffers[place.key] = value
    else:
        place.owner[place.key] = value
    place.value = value
