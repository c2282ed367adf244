"""``weightstore convert``: any format that is read to any format that is written."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from .._files.formats import endings
from ..errors import make
from . import options
from .output import print_json, safe, table
from .progress import bar

if TYPE_CHECKING:
    from .._convert.plan import Plan


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "convert",
        _convert,
        "write what a file, a set or a checkpoint holds in the format of the target's ending; streams, so that models may be "
        "larger than memory",
        (
            "weightstore convert pytorch_model.bin model.safetensors",
            "weightstore convert model.safetensors model.safetensors.index.json --max-shard-size 5GB",
            "weightstore convert checkpoint.pt encoder.safetensors --top-level-key model --include '^encoder\\.' "
            "--rename '^encoder\\.=>'",
            "weightstore convert model.safetensors half.safetensors --dtype bf16 --dry-run",
            "weightstore convert net.safetensors net.bpk --adapter pytorch-to-burn --module mypackage.net:Net",
        ),
    )
    parser.add_argument("source", help=f"{options.PATH_HELP}; usual endings of files are {endings()}")
    parser.add_argument("target", help=f"a name that ends in {endings(writable=True)}")
    parser.add_argument("--overwrite", action="store_true", help="replace the target if it is there")
    parser.add_argument("--dry-run", action="store_true", help="print what would be written, and write nothing")
    parser.add_argument(
        "--top-level-key",
        metavar="KEY",
        help="only the tensors below this key, without it: model.encoder.weight becomes encoder.weight",
    )
    options.add_choice(parser)
    parser.add_argument(
        "--rename",
        metavar="PATTERN=>REPLACEMENT",
        action="append",
        help="replace all matches of a regular expression in names; $1 is the first group. Several are applied in order",
    )
    parser.add_argument(
        "--dtype",
        metavar="TYPE",
        help="cast floating-point tensors to F32, F64, F16 or BF16; quantized ones become numbers. For a GGUF file also Q8_0 or "
        "Q4_0, which quantizes",
    )
    parser.add_argument(
        "--adapter",
        choices=("pytorch-to-burn", "burn-to-pytorch"),
        help="change names and shapes from those of one framework to those of the other; needs --module or --types",
    )
    parser.add_argument(
        "--module", metavar="PACKAGE:CLASS", help="for --adapter: the torch module that says which layer a tensor is of"
    )
    parser.add_argument(
        "--types",
        metavar="FILE",
        help='for --adapter: a JSON file of patterns of layers and their types: {"fc": "Linear"}',
    )
    parser.add_argument(
        "--max-shard-size",
        metavar="SIZE",
        help="write shards of at most this size, such as 5GB or 5GiB, and their index",
    )
    parser.add_argument("--checksums", action="store_true", help="compute a checksum of every tensor")
    parser.add_argument(
        "--verify",
        choices=("lazy", "full", "off"),
        default="lazy",
        help="compare the source's checksums while copying (lazy), before (full; all tensors need one), or not (off)",
    )
    parser.add_argument(
        "--burn",
        metavar="RELEASE",
        help="for Burnpack: the release of Burn that shall read the file, 0.20 to 0.23; if it is not given, the source's or 0.22",
    )
    options.add_opaque(parser)
    options.add_progress(parser)
    options.add_json(parser)


def _convert(arguments: argparse.Namespace) -> int:
    from .._convert.convert import convert

    with bar(False if arguments.dry_run else arguments.progress, "converting") as report:
        plan = convert(
            arguments.source,
            arguments.target,
            overwrite=arguments.overwrite,
            progress=report,
            max_shard_size=arguments.max_shard_size,
            verify=arguments.verify,
            checksums=arguments.checksums,
            opaque=arguments.opaque,
            burn=arguments.burn,
            dtype=arguments.dtype,
            top_level_key=arguments.top_level_key,
            include=arguments.include,
            exclude=arguments.exclude,
            rename=[_rule(text) for text in arguments.rename or ()],
            adapter=arguments.adapter,
            types=_types(arguments),
            dry_run=arguments.dry_run,
        )
    if arguments.json:
        print_json(plan.as_dict())
    elif arguments.dry_run:
        _print(plan)
    return 0


def _rule(text: str) -> tuple[str, str]:
    pattern, arrow, replacement = text.partition("=>")
    if not arrow:
        raise make("invalid_argument", f"--rename {text!r} has no '=>' between pattern and replacement")
    return pattern, replacement


def _types(arguments: argparse.Namespace) -> Any:
    """What --module and --types say about the layers."""
    given = [name for name in ("module", "types") if getattr(arguments, name) is not None]
    if given and arguments.adapter is None:
        raise make("invalid_argument", f"--{given[0]} is for --adapter, which is not given")
    if len(given) == 2:
        raise make("invalid_argument", "give --module or --types, not both")
    if arguments.types is not None:
        return _types_of_file(arguments.types)
    if arguments.module is not None:
        return _module(arguments.module)
    return None


def _types_of_file(path: str) -> Any:
    import json

    with open(path, encoding="utf-8") as file:
        try:
            types = json.load(file)
        except ValueError as error:
            raise make("invalid_argument", f"this is not JSON: {error}", path=path) from error
    if not isinstance(types, dict):
        raise make("invalid_argument", "types are a JSON object of patterns and layer types", path=path)
    return types


def _module(text: str) -> Any:
    """The class that --module names, called without arguments; its weights stay on the device "meta", without memory."""
    import importlib

    package, colon, name = text.partition(":")
    if not colon or not package or not name:
        raise make("invalid_argument", f"--module {text!r} is not of the form package:Class")
    sys.path.insert(0, "")  # as python -m does: modules of the current directory are found
    try:
        made: Any = importlib.import_module(package)
    except ImportError as error:
        raise make("invalid_argument", f"--module: cannot import {package!r}: {error}") from error
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(made, part):
            raise make("invalid_argument", f"--module: {package!r} has no {name!r}")
        made = getattr(made, part)
    import torch

    if not isinstance(made, torch.nn.Module):
        try:
            with torch.device("meta"):
                made = made()
        except TypeError as error:
            raise make(
                "invalid_argument", f"--module: {text} cannot be called without arguments: {error}; use --types"
            ) from error
    return made


def _print(plan: Plan) -> None:
    from .._files.sizes import format_size

    rows = [
        (
            safe(row.source) if row.source == row.name else f"{safe(row.source)} => {safe(row.name)}",
            row.dtype if row.dtype == row.source_dtype else f"{row.source_dtype} => {row.dtype}",
            str(list(row.shape)),
            format_size(row.nbytes),
        )
        for row in plan.tensors
    ]
    print(table(rows, right=(3,)), end="")
    total = sum(row.nbytes for row in plan.tensors)
    files = "" if plan.shards is None else f" in {plan.shards} shards"
    print(
        f"{len(rows)} tensors, {format_size(total)}, as {plan.title}{files}: {safe(plan.target)}; nothing was written"
    )
