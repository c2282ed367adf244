"""`weightstore.convert`."""

from __future__ import annotations

import logging
import os
from typing import Any

from .. import _core, errors
from .._chunks import sources as chunked
from .._files import saving
from .._files.dequantized import number_type
from .._files.formats import FORMATS, INDEX, format_of_files, format_to_write, title_of
from .._files.paths import check_local
from .._files.progress import Progress, reporting
from .._files.sizes import DEFAULT_SHARD_SIZE, Size, parse_size
from .._files.source import Opaque, OpenSource, Verify, open_source
from .._tensors import dtypes
from .names import Names, Patterns, Rules
from .plan import Plan, PlannedTensor, count_shards

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
    top_level_key: str | None = None,
    include: Patterns | None = None,
    exclude: Patterns | None = None,
    rename: Rules | None = None,
    adapter: Any = None,
    types: Any = None,
    dry_run: bool = False,
) -> Plan:
    """Writes the contents of `src` to `dst`, in the format of dst's ending: `.safetensors`, `.bpk`, `.gguf`, or
    `.safetensors.index.json` for a set of shards. Raises InvalidArgument for any other ending. Returns what it wrote.

    convert() streams: it holds one block of a tensor at a time. It keeps the order of the data, param ids, metadata,
    scalars, checksums and the description of a checkpoint's tables. If the target's format cannot hold something, convert()
    raises before it writes anything. Only two things are dropped, with a warning in the log: param ids on the way to another
    format than Burnpack, and arrays in the metadata of GGUF on the way to another format; numbers there become text.

    src: a file, the index of a set of shards, or the directory of a set or a checkpoint.
    overwrite: False raises ConflictError if `dst` exists.
    max_shard_size: bytes, or text such as "5GB" or "5GiB". A larger SafeTensors file becomes a set of shards of at most this
        size, whose index is beside `dst`. For an index the default is "5GB".
    verify: "lazy" compares the checksums of `src` while it copies; "full" compares all of them before it writes anything, and
        refuses a source in which a tensor has none; "off" copies damaged tensors, with the checksums that they had. False
        is "off", True is "full".
    checksums: compute a crc32c of every tensor, also of those that had none.
    opaque: as for `weightstore.open`.
    burn: for Burnpack: the release of Burn that shall read the file, "0.20" to "0.23". The default is the release that `src` was
        written for if `src` tells, otherwise the newest stable release, 0.22. A tensor from which that release would read
        other numbers raises InvalidArgument.
    dtype: F32, F64, F16 or BF16: tensors of these types are cast to it, and quantized tensors become numbers of it. All other
        tensors are copied as they are. For a `.gguf` file also Q8_0 or Q4_0: floats in tensors of two or more dimensions, and
        tensors that are quantized otherwise, are quantized to this type. Those whose rows are not whole blocks of 32 stay as
        they are, with a warning in the log.
    top_level_key: convert only the tensors whose names begin with this key and a dot, and leave both out of the names.
    include, exclude: regular expressions, searched for anywhere in a name. Only tensors that match `include`, if it is given,
        and do not match `exclude` are converted.
    rename: rules of a `KeyRemapper`: pairs of a regular expression and its replacement, in which `$1` is the first group.
    adapter: "pytorch-to-burn", "burn-to-pytorch" or a ModuleAdapter, which changes names and shapes by the type of the layer.
    types: for an adapter: a torch.nn.Module with these layers, or their types: {"fc": "Linear", r"blocks\\.\\d+": None}. An adapter
        that needs types and gets none raises InvalidArgument. Names are those after `rename`.
    dry_run: write nothing, and return what would be written.
    """
    path = os.fspath(dst)
    check_local(path, "save")
    format = format_to_write(os.fsdecode(path))
    if max_shard_size is not None and format_of_files(format) != format_of_files(INDEX):
        text = f"{FORMATS[format].title} files are not sharded; leave out max_shard_size"
        raise errors.make("invalid_argument", text, path=os.fsdecode(path))
    if types is not None and adapter is None:
        raise errors.make("invalid_argument", "types= says what layers an adapter works on; there is no adapter")
    saving.check_burn(burn, format)
    numbers = None if dtype is None else _converted_type(dtype, format)
    names = Names(top_level_key, include, exclude, rename)
    most = None if max_shard_size is None and format != INDEX else _shard_bytes(max_shard_size)
    options: dict[str, Any] = {"durable": durable, "overwrite": overwrite, "checksums": checksums}
    with open_source(_tables_in_blocks(src), verify=verify, opaque=opaque) as source, reporting(progress) as report:
        reader, sources = names.applied_to(source.reader, source.path)
        if adapter is not None:
            from .adapted import plan_adapted

            chosen = OpenSource(reader, source.path, source.mapped)
            writer, origins, dropped = plan_adapted(chosen, format, adapter, types, numbers)
            before = dict(zip(reader.names_in_order(), sources, strict=True))
            plan = _plan(source, path, format, [before[name] for name in origins], writer.tensors(), most)
            if not dry_run:
                options.update(progress=report, max_shard_size=max_shard_size, burn=burn or reader.burn_release)
                saving.write(writer, path, format=format, **options)
                _warn(src, path, format, metadata=dropped)
            return _checked(plan, path, dry_run, overwrite)
        plan = _plan(source, path, format, sources, _core.plan_conversion(reader, format, numbers), most)
        if not dry_run:
            options.update(progress=report, burn=burn or "", dtype=numbers, max_shard_bytes=most)
            param_ids, dropped, not_quantized = _core.convert(reader, path, format, **options)
            _warn(src, path, format, param_ids, dropped, not_quantized)
        return _checked(plan, path, dry_run, overwrite)


def _converted_type(dtype: Any, format: str) -> str:
    """The type that tensors shall become: of numbers, or one that the format has and tensors are quantized to."""
    name = dtypes.stored_name(dtype)
    return name if name in _core.QUANTIZABLE and name in FORMATS[format].dtypes else number_type(dtype)


def _warn(
    src: Any,
    path: Any,
    format: str,
    param_ids: int = 0,
    metadata: list[str] | None = None,
    stay: list[str] | None = None,
) -> None:
    """Says what the target does not have.

    stay: tensors that could not be quantized."""
    title = title_of(format_of_files(format))
    if param_ids:
        _log.warning("%s: %s cannot hold param ids; those of %d tensors are not in %s", src, title, param_ids, path)
    if metadata:
        entries = ", ".join(metadata)
        _log.warning("%s: %s cannot hold these metadata, which are not in %s: %s", src, title, path, entries)
    if stay:
        _log.warning("%s: rows of these tensors are not whole blocks and stay as they are: %s", path, ", ".join(stay))


def _shard_bytes(size: Size | None) -> int:
    return parse_size(DEFAULT_SHARD_SIZE if size is None else size, "max_shard_size")


def _plan(
    source: OpenSource,
    path: Any,
    format: str,
    sources: list[str],
    rows: list[tuple[str, str, tuple[int, ...], int]],
    most: int | None,
) -> Plan:
    reader = source.reader
    before = [row[1] for row in reader.describe_many([reader.at(name) for name in sources])]
    tensors = tuple(
        PlannedTensor(*one) for one in ((s, d, *row) for s, d, row in zip(sources, before, rows, strict=True))
    )
    sizes = [tensor.nbytes for tensor in tensors]
    sharded = most is not None and (format == INDEX or sum(sizes) > most)
    return Plan(
        source.path or "<memory>",
        os.fsdecode(path),
        format_of_files(format),
        tensors,
        count_shards(sizes, most) if sharded and most is not None else None,
    )


def _checked(plan: Plan, path: Any, dry_run: bool, overwrite: bool) -> Plan:
    """A plan that could not be carried out is none."""
    if dry_run and not overwrite and os.path.lexists(path):
        text = "the file exists; allow overwriting, or choose another name"
        raise errors.make("conflict", text, path=os.fsdecode(path))
    return plan


def _tables_in_blocks(src: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """What to open for `src`, so that the tables of a checkpoint stay tables: of a directory the index, which has the blocks of
    a column, and not the directory, where the column is one tensor."""
    if not os.path.isdir(src) or chunked.is_chunked(os.fsdecode(src)):
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
