"""The verbs of `safetensors.torch`, for SafeTensors and (paths ending in `.bpk`) Burnpack. Imports torch.

Tensors of any layout are saved by value: transposed, expanded, conjugated and negated views come out as torch shows them,
gathered block by block while they are written.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ._checkpoints import torch_library as _torch_library
from ._files import loading as _load
from ._files import saving as _save
from ._files.deferred import DeferredTensor
from ._files.file import open
from ._files.progress import Progress
from ._files.safe_open import safe_open
from ._files.source import Backend
from ._tensors import aliases as _aliases
from ._tensors import torch_tensors as _tensors

__all__ = [
    "DeferredTensor",
    "library_path",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]

_log = logging.getLogger(__name__)


def save_file(
    tensors: Mapping[str, torch.Tensor | DeferredTensor],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    durable: bool = True,
    checksums: bool = False,
    overwrite: bool = True,
    progress: Progress | bool | None = None,
    max_shard_size: int | str | None = None,
    param_ids: Mapping[str, int] | None = None,
    scalars: Mapping[str, _save.Scalar] | None = None,
) -> None:
    """Saves tensors. The file appears under its name only when it is whole. Tensors that share memory are refused.

    durable: what was written survives a power failure once this returns.
    checksums: keep a crc32c of every tensor in the metadata, to be compared with `open(..., verify=...)`.
    overwrite: False raises ConflictError when the file exists.
    max_shard_size: "5GB" or bytes; a larger SafeTensors file becomes shards beside `<name>.safetensors.index.json`.
        The file replaces a set of this name, and the set the file.
    param_ids, scalars: Burnpack only.
    """
    _check(tensors)
    _save.save_file(
        tensors,
        filename,
        metadata,
        _tensors.add_tensor,
        param_ids=param_ids,
        scalars=scalars,
        durable=durable,
        checksums=checksums,
        overwrite=overwrite,
        progress=progress,
        max_shard_size=max_shard_size,
    )


def save(tensors: Mapping[str, torch.Tensor | DeferredTensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a SafeTensors file."""
    _check(tensors)
    return _save.collect(tensors, metadata, _tensors.add_tensor, "safetensors").write_bytes("safetensors")


def load_file(
    filename: str | os.PathLike[str],
    device: str | int | torch.device = "cpu",
    *,
    backend: Backend = "mmap",
    progress: Progress | bool | None = None,
) -> dict[str, torch.Tensor]:
    """All tensors of a file: as copy-on-write views of the mapped file ("mmap"; changing them leaves the file as it is), or
    in memory of their own, read in parallel ("pread")."""
    loaded = _load.load_file(filename, backend, "torch", progress)
    target = torch.device(device)
    if target.type == "cpu":
        return loaded
    return {name: tensor.to(target) for name, tensor in loaded.items()}


def load(data: bytes) -> dict[str, torch.Tensor]:
    """All tensors of a file's bytes, in memory of their own."""
    with open(data) as file:
        return file.load(framework="torch")


def save_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True,
    **options: Any,
) -> None:
    """Saves a model's state. Of tensors that share memory one is saved, and the metadata maps each other name to it.

    A file is always row-major; force_contiguous=False refuses tensors that are not, instead of gathering them.
    options: as for save_file().
    """
    state = model.state_dict()
    strided = [] if force_contiguous else [name for name, tensor in state.items() if not tensor.is_contiguous()]
    if strided:
        raise ValueError(f"not contiguous: {', '.join(strided)}. Make them so, or let force_contiguous be True")
    described = None if metadata is None else dict(metadata)
    for kept, dropped in _aliases.names_to_drop(state).items():
        described = {} if described is None else described
        for name in dropped:
            described.setdefault(name, kept)
            del state[name]
    save_file(state, filename, described, **options)


def load_model(
    model: torch.nn.Module,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int | torch.device = "cpu",
    *,
    backend: Backend = "mmap",
) -> tuple[set[str], list[str]]:
    """Loads a file into a model. Returns the names the file lacks and those the model lacks; with `strict` either is an
    error. Names that share memory with one in the file count as loaded."""
    loaded = load_file(filename, device, backend=backend)
    dropped = _aliases.names_to_drop(model.state_dict(), loaded.keys())
    result = model.load_state_dict(loaded, strict=False)
    missing, unexpected = set(result.missing_keys), list(result.unexpected_keys)
    for names in dropped.values():
        for name in names:
            if name in missing:
                missing.remove(name)
            else:
                unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for title, found in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if found:
                lines.append(f"    {title} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in found))
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def library_path() -> Path:
    """The library behind `torch.classes.store`, for C++ programs. ImportError when it was not built."""
    return _torch_library.library_path()


def _check(tensors: Mapping[str, Any]) -> None:
    if not isinstance(tensors, Mapping):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    resident = {}
    for name, value in tensors.items():
        if isinstance(value, DeferredTensor):
            continue
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"Key `{name}` is invalid, expected torch.Tensor but received {type(value)}")
        resident[name] = value
    _aliases.check_not_shared(resident)


try:
    _torch_library.load()
except ImportError as error:
    _log.debug("torch.classes.store is not there: %s", error)
