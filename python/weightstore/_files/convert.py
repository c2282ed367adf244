"""`weightstore.convert`."""

from __future__ import annotations

import logging
import os
from typing import Any

from .. import _core, errors
from .._tensors import dtypes
from .dequantized import number_type
from .formats import FORMATS, INDEX, INDEX_ENDING, format_of_files, format_to_write, title_of
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
    """Writes the contents of `src` to `dst`, in the format of dst's ending: `.safetensors`, `.bpk`, `.gguf`, or
    `.safetensors.index.json` for a set of shards. Raises InvalidArgument for any other ending.

    convert() streams: it holds one block of a tensor at a time. It keeps the order of the data, param ids, metadata,
    scalars, checksums and the description of a checkpoint's tables. If the target's format cannot hold something, convert()
    raises before it writes anything. Only two things are dropped, with a warning in the log: param ids on the way to another
    format than Burnpack, and arrays in the metadata of GGUF on the way to another format; numbers there become text.

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
    dtype: F32, F64, F16 or BF16: quantized tensors become numbers of this type, so that SafeTensors can hold them. Other tensors are
        copied as they are. For a `.gguf` file also Q8_0 or Q4_0: floats in tensors of two or more dimensions, and tensors that
        are quantized otherwise, are quantized to this type. Those whose rows are not whole blocks of 32 stay as they are,
        with a warning in the log.
    """
    path = os.fspath(dst)
    check_local(path, "save")
    format = format_to_write(os.fsdecode(path))
    if max_shard_size is not None and format != INDEX:
        raise errors.make("invalid_argument", f"max_shard_size is for targets that end in {INDEX_ENDING}", path=path)
    check_burn(burn, format)
    with open_source(src, verify=verify, opaque=opaque) as source, reporting(progress) as report:
        param_ids, metadata, not_quantized = _core.convert(
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
            dtype=None if dtype is None else _converted_type(dtype, format),
            progress=report,
        )
    title = title_of(format_of_files(format))
    if param_ids:
        _log.warning("%s: %s cannot hold param ids; those of %d tensors are not in %s", src, title, param_ids, path)
    if metadata:
        _log.warning(
            "%s: %s cannot hold these metadata, which are not in %s: %s", src, title, path, ", ".join(metadata)
        )
    if not_quantized:
        _log.warning(
            "%s: rows of these tensors are not whole blocks of %s, so that they stay as they are in %s: %s",
            src,
            dtype,
            path,
            ", ".join(not_quantized),
        )


def _converted_type(dtype: Any, format: str) -> str:
    """The type that tensors shall become: of numbers, or one that the format has and tensors are quantized to."""
    name = dtypes.stored_name(dtype)
    return name if name in _core.QUANTIZABLE and name in FORMATS[format].dtypes else number_type(dtype)
