"""``weightstore diff``: what is different between two files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from . import options
from .output import Style, print_json, safe
from .progress import bar

if TYPE_CHECKING:
    from .._look.difference import Changed, Difference


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "diff",
        _diff,
        "compare two files, whatever their formats and shards are; the status is 0 if they hold the same",
        (
            "weightstore diff before.safetensors after.safetensors",
            "weightstore diff pytorch_model.bin model.safetensors --values",
        ),
    )
    parser.add_argument("a", help=options.PATH_HELP)
    parser.add_argument("b", help="the same; tensors that only it has are extra")
    parser.add_argument("--values", action="store_true", help="also compare the values, which reads both files")
    options.add_opaque(parser)
    options.add_progress(parser)
    options.add_json(parser)


def _diff(arguments: argparse.Namespace) -> int:
    from .._look.difference import difference

    with (
        options.open_file(arguments.a, arguments.opaque) as a,
        options.open_file(arguments.b, arguments.opaque) as b,
        bar(arguments.progress if arguments.values else False, "comparing") as report,
    ):
        found = difference(a, b, values=arguments.values, progress=report)
    if arguments.json:
        print_json({"a": arguments.a, "b": arguments.b, **found.as_dict()})
    else:
        _print(found)
    return 0 if found.is_same else 1


def _print(found: Difference) -> None:
    style = Style(sys.stdout)
    for name in found.missing:
        print(style(f"- {safe(name)}", "red"))
    for name in found.extra:
        print(style(f"+ {safe(name)}", "green"))
    for one in found.changed:
        print(style(f"~ {safe(one.name)}", "yellow") + f": {_text(one)}")
    what = (
        "tensors have the same types, shapes and values"
        if found.compared_values
        else "tensors have the same types and shapes"
    )
    counts = [(len(found.missing), "missing"), (len(found.extra), "extra"), (len(found.changed), "changed")]
    parts = [f"{count} {word}" for count, word in counts if count]
    print(", ".join([*parts, f"{found.same} {what}"]))


def _text(one: Changed) -> str:
    parts = []
    if one.has_other_shape:
        parts.append(f"shape {list(one.shapes[0])} became {list(one.shapes[1])}")
    if one.has_other_dtype:
        parts.append(f"type {one.dtypes[0]} became {one.dtypes[1]}")
    values = one.values
    if values is not None and values.differing:
        parts.append(
            f"{values.differing} of {values.count} values differ, by at most {values.max_absolute:.6g} "
            f"(relative {values.max_relative:.3g})"
        )
        if values.unmeasured:
            parts.append(f"{values.unmeasured} of them are NaN, infinite or not numbers")
    elif values is not None:
        parts.append("values are equal")
    return ", ".join(parts)
