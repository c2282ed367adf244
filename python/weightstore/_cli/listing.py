"""``weightstore list``: one line a tensor."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from . import options
from .output import Style, print_json, safe, show_name

if TYPE_CHECKING:
    from .._core import Reader

_SORTS = ("name", "size", "dtype", "shape", "file")


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "list",
        _list,
        "print one line for each tensor: name, type, shape and size; reads headers only",
        (
            "weightstore list model.safetensors",
            "weightstore list model.safetensors.index.json --include '^model.layers.0\\.'",
            "weightstore list checkpoint/ --sort size --reverse",
        ),
    )
    parser.add_argument("path", help=options.PATH_HELP)
    options.add_choice(parser)
    parser.add_argument(
        "--sort",
        choices=_SORTS,
        default="name",
        help="the order: by name (the default), by size, by type, by shape, or as in the file",
    )
    parser.add_argument("--reverse", action="store_true", help="the other way round")
    options.add_opaque(parser)
    options.add_json(parser)


def _list(arguments: argparse.Namespace) -> int:
    from .. import _core
    from .._files.sizes import format_size

    with options.open_headers(arguments.path, arguments.opaque) as source:
        reader = source.reader
        numbers = _sorted_numbers(reader, arguments)
        if arguments.json:
            rows = reader.describe_many(numbers)
            tensors = [{"name": n, "dtype": d, "shape": list(s), "nbytes": size} for n, d, s, size in rows]
            print_json({"path": arguments.path, "format": source.format, "tensors": tensors})
            return 0
        lines = _core.tensor_lines(reader, numbers, show_name)
        (_, _, total), *_ = _core.outline(reader, depth=0, largest=0)
        if len(numbers) != len(reader):
            total = sum(row[3] for row in reader.describe_many(numbers))
        style = Style(sys.stdout)
        some = "" if len(numbers) == len(reader) else f"{len(numbers)} of "
        what = f"{source.format}, {some}{len(reader)} tensors, {format_size(total)}"
        print(f"{style(safe(arguments.path), 'bold')}: {what}")
        sys.stdout.flush()
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(_encoded(lines))
        else:
            sys.stdout.write(lines.decode())
    return 0


def _encoded(lines: bytes) -> bytes:
    encoding = sys.stdout.encoding
    if encoding.lower() in ("utf-8", "utf8") or lines.isascii():
        return lines
    return lines.decode().encode(encoding, "backslashreplace")


def _sorted_numbers(reader: Reader, arguments: argparse.Namespace) -> list[int]:
    numbers = reader.numbers()
    if arguments.include or arguments.exclude:
        names = reader.names()
        kept = set(options.chosen(names, arguments.include, arguments.exclude))
        numbers = [number for name, number in zip(names, numbers, strict=True) if name in kept]
    if arguments.sort == "file":
        numbers.sort()
    elif arguments.sort != "name":
        field = {"dtype": 1, "shape": 2, "size": 3}[arguments.sort]
        rows = dict(zip(numbers, reader.describe_many(numbers), strict=True))
        numbers.sort(key=lambda number: rows[number][field])
    if arguments.reverse:
        numbers.reverse()
    return numbers
