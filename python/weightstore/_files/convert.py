"""`weightstore.convert`."""

from __future__ import annotations

import logging
import os

from .. import _core, errors
from .progress import Progress, reporting
from .saving import INDEX_ENDING
from .sizes import DEFAULT_SHARD_SIZE, parse_size
from .source import Opaque, Verify, open_source

_log = logging.getLogger(__name__)


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress | bool | None = None,
    durable: bool = True,
    max_shard_size: int | str | None = None,
    verify: Verify = "lazy",
    checksums: bool = False,
    opaque: Opaque = "error",
) -> None:
    """Writes what `src` holds to `dst`, in the format of its ending: `.safetensors`, `.bpk`, or `.safetensors.index.json`
    for shards of at most max_shard_size ("5GB").

    Streams: one block of a tensor is in memory at a time. Keeps the order of the data, param ids, metadata, scalars,
    checksums and the description of a checkpoint's tables. What the target's format cannot hold is an error, before
    anything is written; only param ids are dropped on the way to SafeTensors, with a warning in the log.

    verify: compare the checksums that `src` carries, on the way ("lazy") or before anything is written ("full", which
        also refuses a source in which a tensor has none). "off" copies damaged tensors, with the checksums they had.
    checksums: compute a crc32c of every tensor, also of those that had none.
    opaque: as for `weightstore.open`.
    """
    path = os.fspath(dst)
    sharded = path.lower().endswith(INDEX_ENDING)
    format = "safetensors index" if sharded else _core.format_of_name(os.path.basename(os.fsdecode(path)))
    if max_shard_size is not None and not sharded:
        raise errors.make("invalid_argument", f"max_shard_size is for targets that end in {INDEX_ENDING}", path=path)
    with open_source(src, verify=verify, opaque=opaque) as source, reporting(progress) as report:
        dropped = _core.convert(
            source.reader,
            path,
            format,
            max_shard_bytes=parse_size(DEFAULT_SHARD_SIZE if max_shard_size is None else max_shard_size),
            durable=durable,
            overwrite=overwrite,
            checksums=checksums,
            progress=report,
        )
    if dropped:
        _log.warning("%s: SafeTensors cannot hold param ids; those of %d tensors are not in %s", src, dropped, path)
