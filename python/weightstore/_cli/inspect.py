"""``weightstore inspect``: what a file amounts to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import options
from .output import Style, print_json, safe, table

if TYPE_CHECKING:
    from .._look.summary import Node, Summary

_MOST_VALUE = 100  # characters of a metadata value
_MOST_FILES = 8
_MOST_CHILDREN = 24  # of one module
_BAR = 24  # columns


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "inspect",
        _inspect,
        "print what a file holds: format, size, parameters, types, metadata, largest tensors and the tree of modules; "
        "reads headers only",
        (
            "weightstore inspect model.safetensors",
            "weightstore inspect checkpoint/ --depth 4",
            "weightstore inspect model.bpk --hexdump",
            "weightstore inspect --sample sample.bpk",
        ),
    )
    parser.add_argument("path", nargs="?", help=options.PATH_HELP)
    parser.add_argument(
        "--depth", type=options.number(0, 64), default=2, metavar="N", help="levels of the tree (default: 2)"
    )
    parser.add_argument(
        "--largest",
        type=options.number(0, 1_000_000),
        default=5,
        metavar="N",
        help="how many large tensors to name (default: 5)",
    )
    parser.add_argument(
        "--hexdump", action="store_true", help="print the beginning of the file in hexadecimal, with each field named"
    )
    parser.add_argument(
        "--sample", metavar="OUT.bpk", help="write a small example file, and print what to try on it; needs no path"
    )
    options.add_opaque(parser)
    options.add_json(parser)


def _inspect(arguments: argparse.Namespace) -> int:
    if arguments.sample is not None:
        from .sample import write_sample

        return write_sample(arguments.sample)
    if arguments.path is None:
        from ..errors import make

        raise make("invalid_argument", "give the path of a file, or --sample OUT.bpk")
    if arguments.hexdump:
        from .hexdump import print_hexdump

        return print_hexdump(arguments.path, arguments.json)
    from .._look.summary import summarize

    with options.open_headers(arguments.path, arguments.opaque) as source:
        summary = summarize(source, depth=arguments.depth, largest=arguments.largest)
    if arguments.json:
        print_json(summary.as_dict())
    else:
        _print(summary)
    return 0


def _print(summary: Summary) -> None:
    from .._files.sizes import format_size

    style = Style(sys.stdout)
    size = sum(size for _, size in summary.files)
    version = f" {summary.version}" if summary.version else ""
    print(style(safe(summary.path or "<memory>"), "bold"))
    facts = [
        ("format", summary.title + version),
        (
            "size",
            f"{format_size(size)} ({size} bytes)"
            + (f" in {len(summary.files)} files" if len(summary.files) != 1 else ""),
        ),
        ("tensors", str(summary.totals.tensors)),
        ("parameters", f"{_count(summary.totals.parameters)} ({summary.totals.parameters})"),
    ]
    print(table(facts, indent="  "), end="")
    whole = summary.totals.nbytes or 1
    _section(
        style,
        "types",
        [
            (
                share.dtype,
                f"{share.totals.nbytes / whole:.1%}",
                "#" * round(_BAR * share.totals.nbytes / whole) or ".",
                f"{share.totals.tensors} tensors",
                format_size(share.totals.nbytes),
            )
            for share in summary.dtypes
        ],
        right=(1, 3, 4),
    )
    if len(summary.files) > 1:
        files = [(safe(path), format_size(size)) for path, size in summary.files[:_MOST_FILES]]
        _section(style, "files", [*files, *_more(len(summary.files) - _MOST_FILES, "files", 2)], right=(1,))
    entries = [(safe(key), safe(str(value), _MOST_VALUE)) for key, value in summary.metadata.items()]
    _section(style, "metadata", entries)
    _section(style, "scalars", [(safe(key), str(value)) for key, value in summary.scalars.items()])
    _section(style, "left out", [tuple(map(safe, value)) for value in summary.left_out])
    largest = [(safe(t.name), t.dtype, str(list(t.shape)), format_size(t.nbytes)) for t in summary.largest]
    _section(style, "largest tensors", largest, right=(3,))
    _section(style, "tree", _tree_rows(summary.tree), right=(1, 2, 3))


def _section(style: Style, title: str, rows: Sequence[Sequence[str]], right: tuple[int, ...] = ()) -> None:
    if rows:
        print(style(title, "bold"))
        print(table(rows, right=right, indent="  "), end="")


def _more(count: int, what: str, columns: int) -> list[tuple[str, ...]]:
    return [(f"... and {count} more {what}", *[""] * (columns - 1))] if count > 0 else []


def _tree_rows(root: Node) -> list[tuple[str, ...]]:
    """Modules that follow each other and look the same, such as the layers of a transformer, share a line."""
    from .._files.sizes import format_size

    rows: list[tuple[str, ...]] = []

    def add(node: Node, names: list[str], depth: int) -> None:
        label = safe(names[0]) if len(names) == 1 else f"{safe(names[0])} to {safe(names[-1])}, {len(names)} alike"
        each = "each " if len(names) > 1 else ""
        totals = node.totals
        what = "" if node.is_tensor else f"{each}{totals.tensors} tensors"
        rows.append(
            ("  " * depth + label, what, _count(totals.parameters), format_size(totals.nbytes), " ".join(node.dtypes))
        )
        runs = _runs(node.children)
        for first, members in runs[:_MOST_CHILDREN]:
            add(first, members, depth + 1)
        if len(runs) > _MOST_CHILDREN:
            rows.append(("  " * (depth + 1) + f"... and {len(runs) - _MOST_CHILDREN} more", "", "", "", ""))

    top = _runs(root.children)
    for first, members in top[:_MOST_CHILDREN]:
        add(first, members, 0)
    rows.extend(_more(len(top) - _MOST_CHILDREN, "in the file", 5))
    return rows


def _runs(nodes: list[Node]) -> list[tuple[Node, list[str]]]:
    """Neighbours with numbers for names that have the same totals and the same children."""
    runs: list[tuple[Node, list[str]]] = []
    for node in nodes:
        if runs and node.name.isdecimal() and runs[-1][0].name.isdecimal() and _looks(node) == _looks(runs[-1][0]):
            runs[-1][1].append(node.name)
        else:
            runs.append((node, [node.name]))
    return runs


def _looks(node: Node) -> object:
    return node.is_tensor, node.totals, node.dtypes, [(child.name, _looks(child)) for child in node.children]


def _count(number: int) -> str:
    """Short text for people: "8.03 G"."""
    value = float(number)
    for unit in ("", " k", " M", " G", " T"):
        if value < 1000 or unit == " T":
            return f"{value:.0f}" if unit == "" else f"{value:.3g}{unit}"
        value /= 1000
    return str(number)
