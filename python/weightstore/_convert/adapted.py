"""Conversions between the layers of PyTorch and Burn. A file does not say what layers its tensors are of, so the caller does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .. import _core, errors
from .._files.file import File
from .._files.source import OpenSource
from .._modules.adapters import (
    BurnToPyTorchAdapter,
    ChainAdapter,
    FloatCastAdapter,
    ModuleAdapter,
    PyTorchToBurnAdapter,
    as_adapter,
    dequantize,
)
from .._modules.layers import make_layer_types, owner_of
from .._modules.module_tensors import collect_with_origins
from .._modules.packed_layers import PACKED_LAYERS
from .._modules.places import is_torch_module, layer_name

ADAPTERS: dict[str, type[ModuleAdapter]] = {
    "pytorch-to-burn": PyTorchToBurnAdapter,
    "burn-to-pytorch": BurnToPyTorchAdapter,
}


def adapter_named(adapter: Any) -> ModuleAdapter:
    """An adapter, from its name, its class or itself."""
    if isinstance(adapter, str):
        if adapter not in ADAPTERS:
            text = f"adapter is {adapter!r}; it is {' or '.join(map(repr, ADAPTERS))}, or a ModuleAdapter"
            raise errors.make("invalid_argument", text)
        return ADAPTERS[adapter]()
    return as_adapter(adapter)


def plan_adapted(
    source: OpenSource, format: str, adapter: Any, types: Any, dtype: str | None
) -> tuple[_core.Writer, list[str], list[str]]:
    """What shall be written of an open source, from which tensor each of it comes, and the metadata that the format cannot hold.
    types: a torch.nn.Module, or patterns of layer paths and their types."""
    made = adapter_named(adapter)
    if made.needs_types and types is None:
        raise errors.make(
            "invalid_argument",
            f"{made!r} changes tensors by the type of their layer, and a file does not say what layers it holds; give types= "
            "(--module or --types)",
            path=source.path,
        )
    file = File(source)
    layers = _types_of_module(types, file) if is_torch_module(types) else types
    if made._joins:
        _refuse_packed(layers, source)
    change = made if dtype is None else ChainAdapter(made, dequantize(dtype), FloatCastAdapter(dtype))
    writer = _core.Writer()
    origins = []
    for origin, snapshot in collect_with_origins(
        dict(file), None, change, False, None if layers is None else make_layer_types(layers, made)
    ):
        snapshot._values.add_to(writer, snapshot.full_path, snapshot.param_id, format)
        origins.append(origin)
    return writer, origins, writer.describe_as(source.reader, format)


def _types_of_module(module: Any, file: File) -> dict[str, type]:
    """The layers of a module that the file has tensors of."""
    owners = {owner_of(name) for name in file}
    return {re.escape(path): type(layer) for path, layer in module.named_modules() if path in owners}


def _refuse_packed(layers: Mapping[str, Any] | None, source: OpenSource) -> None:
    for pattern, layer in (layers or {}).items():
        name = layer_name(layer) if isinstance(layer, type) else layer
        if name in PACKED_LAYERS:
            raise errors.make(
                "invalid_argument",
                f"{pattern!r} is a {name}, which PyTorch packs and Burn keeps in parts; only loading joins them: load the file "
                "into the module with BurnToPyTorchAdapter, and save the module",
                path=source.path,
            )
