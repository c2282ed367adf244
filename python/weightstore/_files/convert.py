"""`weightstore.convert`."""

from __future__ import annotations

import logging
import os
from typing import Any

from .. import _core, errors
from .._chunks import sources
from .dequantized import number_type
from .formats import INDEX, INDEX_ENDING, format_of_files, format_to_write, title_of
from .paths import check_local
from .progress import Progress, reporting
from .saving import check_burn
from .sizes import DEFAULT_SHARD_SIZE, Size, parse_size
from .source import Opaque, Verify, open_source

_log = logging.getLogger(__name__)


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    durable: bool = True,
    max_shard_size: Size | None = None,
    verify: Verify = "lazy",
    checksums: bool = False,
    opaque: Opaque = "skip",
    burn: str | None = None,
    dtype: Any = None,
) -> None:
    """Writes the contents of `src` to `dst`, in the format of dst's ending: `.safetensors`, `.bpk`, or
    `.safetensors.index.json` for a set of shards. Raises InvalidArgument for any other ending.

    convert() streams: it holds one block of a tensor at a time. It keeps the order of the data, param ids, metadata,
    scalars, checksums and the description of a checkpoint's tables. If the target's format cannot hold something, convert()
    raises before it writes anything. Only param ids are dropped on the way to SafeTensors, with a warning in the log.

    overwrite: False raises ConflictError if `dst` exists.
    max_shard_size: for a set of shards: bytes, or text such as "5GB" (the default) or "5GiB".
    verify: "lazy" compares the checksums of `src` while it copies; "full" compares all of them before it writes anything, and
        refuses a source in which a tensor has none; "off" copies damaged tensors, with the checksums that they had. False
        is "off", True is "full".
    checksums: compute a crc32c of every tensor, also of those that had none.
    opaque: as for `weightstore.open`.
    burn: for Burnpack: the release of Burn that shall read the file, "0.20" to "0.23". The default is the release that `src` was
        written for if `src` tells, otherwise the newest stable release, 0.22. A tensor from which that release would read
        other numbers raises InvalidArgument.
    dtype: F32, F64, F16 or BF16: quantized tensors of Burn become numbers of this type, so that SafeTensors can hold them. Other
        tensors are copied as they are.
    """
    path = os.fspath(dst)
    check_local(path, "save")
    format = format_to_write(os.fsdecode(path))
    if max_shard_size is not None and format != INDEX:
        raise errors.make("invalid_argument", f"max_shard_size is for targets that end in {INDEX_ENDING}", path=path)
    check_burn(burn, format)
    with open_source(_tables_in_blocks(src), verify=verify, opaque=opaque) as source, reporting(progress) as report:
        dropped = _core.convert(
            source.reader,
            path,
            format,
            max_shard_bytes=parse_size(
                DEFAULT_SHARD_SIZE if max_shard_size is None else max_shard_size, "max_shard_size"
            ),
            durable=durable,
            overwrite=overwrite,
            checksums=checksums,
            burn=burn or "",
            dtype=None if dtype is None else number_type(dtype),
            progress=report,
        )
    if dropped:
        title = title_of(format_of_files(format))
        _log.warning("%s: %s cannot hold param ids; those of %d tensors are not in %s", src, title, dropped, path)


def _tables_in_blocks(src: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """What to open for `src`, so that the tables of a checkpoint stay tables: of a directory the index, which has the blocks of
    a column, and not the directory, where the column is one tensor."""
    if not os.path.isdir(src) or sources.is_chunked(os.fsdecode(src)):
        return src
    kind, paths = _core.find_model(src)
    if kind == "recis" and (tables := _core.CheckpointReader.open(src).tables()):
        raise errors.make(
            "invalid_argument",
            f"has tables, such as {next(iter(tables))!r}, in RecIS's layout, which no file can hold; load them with Loader "
            "and save them with Saver, or read single columns with weightstore.open",
            path=os.fsdecode(src),
        )
    return paths[0] if kind == "file" else src
