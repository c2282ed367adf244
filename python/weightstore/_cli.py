"""``weightstore``, the command: lists, checks and converts files, and says where the C++ library is."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

import weightstore

from ._files.formats import endings
from ._files.sizes import format_size
from ._installed import find_installed

_DIRECTORIES = {
    "cmake-dir": ("lib/cmake/weightstore", "the CMake package, for -Dweightstore_DIR="),
    "include-dir": ("include", "the C++ headers"),
    "pkgconfig-dir": ("lib/pkgconfig", "the pkg-config file, for PKG_CONFIG_PATH"),
}


def _printable(text: str) -> str:
    """A name from a file must not reach the terminal as anything but text."""
    return text if text.isprintable() else repr(text)


def _brief(file: weightstore.File, key: str, value: object) -> str:
    """A value for one line: of a list, what it is and how long."""
    if isinstance(value, list) and isinstance(file.metadata, weightstore.Metadata):
        return f"{file.metadata.type_of(key)} of {len(value)}"
    return str(value)


def _list(arguments: argparse.Namespace) -> int:
    if os.path.isdir(arguments.file):
        return _list_checkpoint(arguments.file)
    with weightstore.open(arguments.file, opaque=arguments.opaque) as file:
        rows = [(_printable(name), file[name].dtype, str(list(file[name].shape)), file[name].nbytes) for name in file]
        total = sum(row[3] for row in rows)
        print(f"{arguments.file}: {file.format}, {len(file)} tensors, {format_size(total)}")
        for kind, entries in (("metadata", file.metadata), ("scalar", file.scalars)):
            for key, value in entries.items():
                print(f"{kind} {_printable(key)} = {_printable(_brief(file, key, value))}")
        for name, type, reason in file.left_out:
            print(f"left out {_printable(name)}: {_printable(type)}, {_printable(reason)}")
    _print_tensors(rows)
    return 0


def _list_checkpoint(directory: str) -> int:
    reader = weightstore.CheckpointReader(directory)
    rows = [
        (_printable(name), reader.stored_dtype(name), str(reader.stored_shape(name)), reader.tensor_nbytes(name))
        for name in reader.tensor_names()
    ]
    tables = len(reader.tables())
    print(f"{directory}: checkpoint, {len(rows)} tensors, {tables} tables, {format_size(sum(row[3] for row in rows))}")
    _print_tensors(rows)
    return 0


def _print_tensors(rows: Sequence[tuple[str, str, str, int]]) -> None:
    widths = [max((len(str(row[column])) for row in rows), default=0) for column in range(3)]
    for name, dtype, shape, nbytes in rows:
        print(f"{name:<{widths[0]}}  {dtype:<{widths[1]}}  {shape:<{widths[2]}}  {format_size(nbytes):>9}")


def _verify(arguments: argparse.Namespace) -> int:
    with weightstore.open(arguments.file, opaque=arguments.opaque) as file:
        checked = file.verify(progress=arguments.progress or None)
        if lacking := len(file.without_checksum()):
            missing = f"{lacking} of {len(file)} tensors have no checksum"
            print(f"{arguments.file}: {checked} checksums are right, {missing}", file=sys.stderr)
            return 1
        print(f"{arguments.file}: all {checked} checksums are right")
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    weightstore.convert(
        arguments.source,
        arguments.target,
        overwrite=arguments.overwrite,
        progress=arguments.progress or None,
        max_shard_size=arguments.max_shard_size,
        verify=arguments.verify,
        checksums=arguments.checksums,
        opaque=arguments.opaque,
        burn=arguments.burn,
        dtype=arguments.dtype,
    )
    return 0


def _version(_: argparse.Namespace) -> int:
    print(weightstore.__version__)
    return 0


def _directory(arguments: argparse.Namespace) -> int:
    relative, _ = _DIRECTORIES[arguments.command]
    directory = find_installed(relative)
    if directory is None:
        print(f"weightstore: this installation has no {relative}; reinstall the package", file=sys.stderr)
        return 1
    print(directory)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="weightstore", description="Looks into, checks and converts files of weights."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")

    def add(name: str, work: Callable[[argparse.Namespace], int], description: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=description, description=description)
        command.set_defaults(work=work)
        return command

    listing = add("list", _list, "print what a file or a checkpoint holds; nothing but headers is read")
    listing.add_argument("file", help="a file, or the directory of a checkpoint")

    verify = add("verify", _verify, "compare a file's bytes with the checksums it carries")
    verify.add_argument("file")

    convert = add("convert", _convert, "write what a file holds in the format of the target's ending")
    convert.add_argument("source", help=f"a file of any format; usual endings are {endings()}")
    convert.add_argument("target", help=f"a name that ends in {endings(writable=True)}")
    convert.add_argument("--overwrite", action="store_true", help="replace the target if it is there")
    convert.add_argument(
        "--max-shard-size", metavar="SIZE", help="for an index: the largest shard, such as 5GB or 5GiB"
    )

    convert.add_argument(
        "--verify",
        choices=("lazy", "full", "off"),
        default="lazy",
        help="compare the source's checksums while copying (lazy), before (full; all tensors need one), or not (off)",
    )
    convert.add_argument(
        "--dtype",
        metavar="TYPE",
        help="write quantized tensors as numbers: F32, F64, F16 or BF16; or quantize for GGUF: Q8_0 or Q4_0",
    )
    convert.add_argument(
        "--burn",
        metavar="RELEASE",
        help="for Burnpack: the release of Burn that shall read the file, 0.20 to 0.23; if it is not given, the source's or 0.22",
    )
    convert.add_argument("--checksums", action="store_true", help="compute a checksum of every tensor")

    for command in (listing, verify, convert):
        command.add_argument(
            "--opaque",
            choices=("error", "skip"),
            default="skip",
            help="values that are neither tensors nor plain data: leave them out (skip), or refuse the file (error)",
        )
    for command in (verify, convert):
        command.add_argument("--progress", action="store_true", help="show a bar (needs tqdm)")

    add("version", _version, "print the version")
    for name, (_, description) in _DIRECTORIES.items():
        add(name, _directory, f"print the directory of {description}")
    return parser


def main(arguments: list[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        status = int(parsed.work(parsed))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `weightstore list FILE | head`; what is left to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (weightstore.StoreError, OSError) as error:
        print(f"weightstore: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
