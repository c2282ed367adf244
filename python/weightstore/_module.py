"""What a module holds. A module is a torch.nn.Module or a mapping of arrays and tensors; both may be nested."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _dtypes, _param_ids, errors
from ._deferred import DeferredTensor
from ._handle import TensorHandle
from ._snapshot import HOLDERS, TensorSnapshot
from ._sources import ArrayValue, FileTensor, Produced, Source, TensorValue

NO_LAYER = ""


@dataclass(slots=True)
class Slot:
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


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_torch_module(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "nn") and isinstance(value, torch.nn.Module)


def slots(module: Any) -> list[Slot]:
    """All tensors of a module, depth first: parameters, then buffers, then children, in the order of their declaration."""
    if not (is_torch_module(module) or isinstance(module, Mapping)):
        raise TypeError(
            f"a module is a torch.nn.Module or a mapping of arrays and tensors, not {type(module).__name__}"
        )
    return list(_walk(module, (), (), None))


def _walk(holder: Any, path: tuple[str, ...], above: tuple[str, ...], layer: str | None) -> Iterator[Slot]:
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
            yield Slot(".".join(here), containers, known, value, holder, key, "item")


def _walk_module(module: Any, path: tuple[str, ...], containers: tuple[str, ...], layer: str | None) -> Iterator[Slot]:
    transient = module._non_persistent_buffers_set
    for kind, tensors in (("parameter", module._parameters), ("buffer", module._buffers)):
        for key, value in tensors.items():
            if value is not None and not (kind == "buffer" and key in transient):
                yield Slot(".".join((*path, key)), containers, layer, value, module, key, kind)
    for key, child in module._modules.items():
        if child is not None:
            yield from _walk(child, (*path, key), containers, layer)


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


# ---- values ----------------------------------------------------------------------------------------------------------


def source_of(value: Any, path: str) -> Source:
    """What reads a value: a tensor, an array, or something lazy."""
    if is_tensor(value):
        if value.layout != sys.modules["torch"].strided:
            raise errors.make(
                "invalid_argument", f"a file cannot hold {value.layout} tensors; save .to_dense()", tensor=path
            )
        return TensorValue(value, path)
    if isinstance(value, (np.ndarray, np.generic)):
        return ArrayValue(value, path)
    if isinstance(value, DeferredTensor):
        return Produced(value.dtype, value.shape, value.produce)
    if isinstance(value, TensorHandle):
        if value._selection is None:
            described = value._file._reader.describe(value._number)
            return FileTensor(value._file, value._number, described, False)
        return Produced(value.dtype, value.shape, value._read)
    raise TypeError(
        f"'{path}' is a {type(value).__name__}; a module holds numpy arrays and torch tensors, or DeferredTensor, "
        "TensorHandle and TensorSnapshot objects when it is only saved from"
    )


def snapshot_of(slot: Slot) -> TensorSnapshot:
    if isinstance(slot.value, TensorSnapshot):
        return slot.value.renamed(slot.path)._in_layer(slot.layer)
    if is_lazy(slot.value):
        raise errors.make("no_data", "the parameter is not initialized: it has no shape yet", tensor=slot.path)
    handle_id = slot.value.param_id if isinstance(slot.value, TensorHandle) else None
    return TensorSnapshot(
        slot.path,
        source_of(slot.value, slot.path),
        containers=slot.containers,
        param_id=_param_ids.id_of(slot.owner, slot.key, slot.path) if handle_id is None else handle_id,
        layer=slot.layer,
    )


def is_lazy(value: Any) -> bool:
    """Whether a tensor is one of torch's that take their shape from the first input."""
    return is_tensor(value) and bool(sys.modules["torch"].nn.parameter.is_lazy(value))


def type_and_shape(value: Any) -> tuple[str | None, tuple[int, ...] | None]:
    """As a file would store it. None for a type that files do not have, and for the shape of a lazy parameter."""
    if not is_tensor(value):
        return _dtypes.READ_AS.get(value.dtype.name), value.shape
    dtype = _dtypes.READ_AS.get(str(value.dtype).removeprefix("torch."))
    if is_lazy(value):
        return dtype, None
    packing = 1 if dtype is None else _dtypes.byte_packing(dtype)
    shape = tuple(value.shape)
    return dtype, (*shape[:-1], shape[-1] * packing) if packing > 1 and shape else shape


def identity(value: Any) -> Hashable:
    """Equal for values that are the same tensor: the same object, or all of the same memory in the same layout."""
    if is_tensor(value) and not is_lazy(value) and value.device.type != "meta" and value.numel():
        if value.layout is not sys.modules["torch"].strided:
            return id(value)
        return value.device, value.data_ptr(), tuple(value.shape), value.stride(), value.dtype
    return id(value)


def memory_range(value: Any) -> tuple[int, int]:
    """First byte and end of what a tensor's elements touch."""
    if not is_tensor(value):
        return np.lib.array_utils.byte_bounds(value) if value.size else (0, 0)
    from . import _aliases

    return (0, 0) if value.device.type == "meta" or is_lazy(value) else _aliases.memory_range(value)


def plain_memory(value: Any) -> int | None:
    """The address of an array or tensor that lies in memory as in a file, row-major and native; else None."""
    if not is_tensor(value):
        plain = value.flags.c_contiguous and value.dtype.isnative
        return value.__array_interface__["data"][0] if plain else None
    plain = value.device.type == "cpu" and value.is_contiguous() and not value.is_conj() and not value.is_neg()
    return value.data_ptr() if plain else None


def can_replace(slot: Slot) -> bool:
    return slot.kind != "item" or isinstance(slot.owner, (MutableMapping, list))


def why_not_a_target(slot: Slot) -> str | None:
    """What keeps a slot from being loaded into, if anything does."""
    value = slot.value
    if is_tensor(value):
        return (
            None if value.layout == sys.modules["torch"].strided else f"cannot be loaded into a {value.layout} tensor"
        )
    if not isinstance(value, (np.ndarray, np.generic)):
        return f"cannot be loaded into a {type(value).__name__}"
    if not can_replace(slot) and not (isinstance(value, np.ndarray) and value.flags.writeable):
        return f"the array is read-only, and a {type(slot.owner).__name__} cannot hold another"
    return None


def replace(slot: Slot, value: Any) -> None:
    """Puts another tensor where the slot's is."""
    if slot.kind == "parameter":
        slot.owner._parameters[slot.key] = value
    elif slot.kind == "buffer":
        slot.owner._buffers[slot.key] = value
    else:
        slot.owner[slot.key] = value
    slot.value = value
