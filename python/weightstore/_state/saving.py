"""Saves a state."""

from __future__ import annotations

import os
from typing import Any

from .. import errors
from .._files import saving
from .._files.paths import check_local
from .._files.progress import Progress
from .._tensors import batches, frameworks
from .encode import encode
from .tree import METADATA_KEY

_FORMAT = "safetensors"


def save_state(
    path: str | os.PathLike[str],
    state: Any,
    *,
    durable: bool = True,
    checksums: bool = True,
    overwrite: bool = True,
    progress: Progress | bool | None = None,
) -> None:
    """Saves nested state in one SafeTensors file, without pickle; `load_state` returns it as it was.

    A state holds dicts, lists, tuples, sets, None, bools, numbers, text, bytes, arrays and scalars of numpy, tensors, types and
    sizes of torch, OrderedDict, Counter, and defaultdict of a plain type; enums and dataclasses after `register_state_type`.
    That includes what `state_dict()` of modules, optimizers and schedulers returns, and the states of random generators. Anything
    else is an error that names its path. Tensors that share memory are saved once, and share memory when they are loaded.

    The file's tensors are called by their paths, such as `optimizer.state.0.exp_avg`, and any reader of SafeTensors can read them.

    path: the file, which appears under its name only when it is complete. It is SafeTensors whatever its ending.
    durable, checksums, overwrite, progress: as for `weightstore.torch.save_file`.
    """
    check_local(os.fspath(path), "save")
    tree, tensors = encode(state)
    batch = batches.look_at(list(tensors.values()))
    writer = saving.collect(tensors, {METADATA_KEY: tree.text()}, _add, _FORMAT, batch)
    try:
        saving.write(
            writer,
            path,
            format=_FORMAT,
            durable=durable,
            checksums=checksums,
            overwrite=overwrite,
            progress=progress,
        )
    except errors.LimitError as error:
        text = "the plain values of the state are too many for the header of a file; keep them in arrays or tensors"
        raise errors.make("limit", f"{text} ({error})", path=os.fspath(path), format=_FORMAT) from None


def _add(writer: Any, name: str, value: Any, param_id: int | None, format: str) -> None:
    if frameworks.is_tensor(value):
        from .._tensors.torch_tensors import add_tensor

        add_tensor(writer, name, value, param_id, format)
    else:
        from .._tensors.arrays import add_array

        add_array(writer, name, value, param_id, format)
