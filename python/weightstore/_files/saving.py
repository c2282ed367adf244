"""What the save verbs share: from a dict of tensors to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import _core, errors
from .deferred import DeferredTensor
from .progress import Progress, reporting
from .sizes import DEFAULT_SHARD_SIZE, parse_size

Scalar = int | float | bool
AddTensor = Callable[[_core.Writer, str, Any, int | None, str], None]

INDEX_ENDING = ".safetensors.index.json"


def format_of(filename: str) -> str:
    """`.bpk` is Burnpack, an index is a set of shards, any other name is SafeTensors."""
    lower = filename.lower()
    if lower.endswith(".bpk"):
        return "burnpack"
    return "safetensors index" if lower.endswith(INDEX_ENDING) else "safetensors"


def collect(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None,
    add: AddTensor,
    format: str,
    param_ids: Mapping[str, int] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
) -> _core.Writer:
    """Plans a file. Touches no data."""
    if format != "burnpack" and (param_ids or scalars):
        what = "param ids" if param_ids else "scalars"
        raise errors.make("invalid_argument", f"SafeTensors cannot hold {what}; write a .bpk file", format=format)
    ids = dict(param_ids or {})
    writer = _core.Writer()
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise TypeError(f"names of tensors are str, not {name!r}")
        param_id = ids.pop(name, None)
        if isinstance(value, DeferredTensor):
            writer.add_deferred(name, value.dtype, value.shape, value.produce, param_id)
        else:
            add(writer, name, value, param_id, format)
    if ids:
        raise errors.make("invalid_argument", f"param_ids names tensors that are not saved: {', '.join(sorted(ids))}")
    if metadata is not None:
        writer.set_metadata(dict(metadata))
    for name, scalar in (scalars or {}).items():
        writer.set_scalar(name, scalar)
    return writer


def save_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None,
    add: AddTensor,
    *,
    param_ids: Mapping[str, int] | None,
    scalars: Mapping[str, Scalar] | None,
    **options: Any,
) -> None:
    """The body of every `save_file`. The path tells the format. options: as for write()."""
    format = format_of(os.fspath(filename))
    write(collect(tensors, metadata, add, format, param_ids, scalars), filename, format=format, **options)


def write(
    writer: _core.Writer,
    filename: str | os.PathLike[str],
    *,
    format: str,
    durable: bool,
    checksums: bool,
    overwrite: bool,
    progress: Progress | bool | None,
    max_shard_size: int | str | None = None,
    burn: str = "0.20",
) -> None:
    """Writes a planned file.

    burn: the oldest release that shall read a Burnpack file.
    max_shard_size: a SafeTensors file that is larger becomes shards and their index. Either form replaces the other."""
    path = os.fspath(filename)
    limit = parse_size(DEFAULT_SHARD_SIZE if max_shard_size is None else max_shard_size)
    if format == "burnpack" and max_shard_size is not None:
        raise errors.make("invalid_argument", "Burnpack files are not sharded; leave out max_shard_size", format=format)
    with reporting(progress) as report:
        options: dict[str, Any] = {
            "durable": durable,
            "overwrite": overwrite,
            "checksums": checksums,
            "progress": report,
        }
        if format == "safetensors index":
            writer.write_shards(path, limit, **options)
        elif format == "safetensors" and max_shard_size is not None:
            writer.write_file_or_shards(path, limit, **options)
        else:
            writer.write_file(path, format, burn=burn, **options)
