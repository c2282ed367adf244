"""What the save verbs share: from a dict of tensors to a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from .. import _core, errors
from .deferred import DeferredTensor
from .entries.metadata import core_metadata
from .entries.scalars import Scalar, add_scalars
from .formats import FORMATS, INDEX, ending_that_holds, format_of_files, format_to_save
from .paths import check_local
from .progress import Progress, reporting
from .sizes import DEFAULT_SHARD_SIZE, Size, parse_size

AddTensor = Callable[[_core.Writer, str, Any, int | None, str], None]


def collect(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, Any] | None,
    add: AddTensor,
    format: str,
    batch: _core.TensorBatch,
    param_ids: Mapping[str, int] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
) -> _core.Writer:
    """Plans a file. Reads no data.

    batch: of the values. `add` adds those that it leaves to Python.
    """
    holds = FORMATS[format]
    if (param_ids and not holds.has_param_ids) or (scalars and not holds.has_scalars):
        ending = ending_that_holds("param_ids" if param_ids else "scalars")
        text = f"{holds.title} cannot hold {'param ids' if param_ids else 'scalars'}; write a {ending} file"
        raise errors.make("invalid_argument", text, format=format)
    names, values = list(tensors), list(tensors.values())
    ids = dict(param_ids or {})
    given = [ids.pop(name, None) for name in names] if ids else None
    writer = _core.Writer()

    def add_other(number: int) -> None:
        name, value, param_id = names[number], values[number], given[number] if given else None
        if isinstance(value, DeferredTensor):
            writer.add_deferred(name, value.dtype, value.shape, value.produce, param_id)
        else:
            add(writer, name, value, param_id, format)

    writer.add_batch(names, batch, add_other, given)
    if ids:
        raise errors.make("invalid_argument", f"param_ids names tensors that are not saved: {', '.join(sorted(ids))}")
    if metadata is not None and holds.has_typed_metadata:
        writer.set_typed_metadata(core_metadata(metadata))
    elif metadata is not None:
        writer.set_metadata(dict(metadata))
    add_scalars(writer, scalars or {})
    return writer


def check_burn(burn: str | None, format: str) -> None:
    """Raises InvalidArgument if `burn` is not a release of Burn, or if the format is not Burn's."""
    if burn is None:
        return
    if not isinstance(burn, str):
        raise TypeError(f"burn is the text of a release, such as '0.22', not {type(burn).__name__}")
    _core.burn_release(burn)
    if format != "burnpack":
        text = (
            f"burn is for {FORMATS['burnpack'].endings[0]} files; {FORMATS[format].title} is the same for all releases"
        )
        raise errors.make("invalid_argument", text, format=format)


def save_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, Any] | None,
    add: AddTensor,
    batch: _core.TensorBatch,
    *,
    param_ids: Mapping[str, int] | None,
    scalars: Mapping[str, Scalar] | None,
    **options: Any,
) -> None:
    """The body of every `save_file`. The path tells the format. options: as for write()."""
    check_local(os.fspath(filename), "save")
    format = format_to_save(os.fspath(filename))
    write(collect(tensors, metadata, add, format, batch, param_ids, scalars), filename, format=format, **options)


def write(
    writer: _core.Writer,
    filename: str | os.PathLike[str],
    *,
    format: str,
    durable: bool,
    checksums: bool,
    overwrite: bool,
    progress: Progress | bool | None,
    max_shard_size: Size | None = None,
    burn: str | None = None,
) -> None:
    """Writes a planned file.

    burn: the release of Burn that shall read a Burnpack file; the newest stable one if it is None.
    max_shard_size: a larger SafeTensors file becomes shards and their index. Either form replaces the other."""
    path = os.fspath(filename)
    limit = parse_size(DEFAULT_SHARD_SIZE if max_shard_size is None else max_shard_size, "max_shard_size")
    if max_shard_size is not None and format_of_files(format) != format_of_files(INDEX):
        text = f"{FORMATS[format].title} files are not sharded; leave out max_shard_size"
        raise errors.make("invalid_argument", text, format=format)
    check_burn(burn, format)
    with reporting(progress) as report:
        options: dict[str, Any] = {
            "durable": durable,
            "overwrite": overwrite,
            "checksums": checksums,
            "progress": report,
        }
        if format == INDEX:
            writer.write_shards(path, limit, **options)
        elif max_shard_size is not None:
            writer.write_file_or_shards(path, limit, **options)
        else:
            writer.write_file(path, format, burn=burn or "", **options)
