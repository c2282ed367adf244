"""What verbs have in common: how a verb is declared, and options that several have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .._files.file import File
    from .._files.source import OpenSource

Verbs = Any  # argparse's class is private
Work = Callable[[argparse.Namespace], int]

PATH_HELP = "a file of any format, the index of a set of shards, or the directory of a set or a checkpoint"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """argparse asks shutil for the width of the terminal, also where no help is printed; importing that takes a while."""

    def __init__(self, prog: str) -> None:
        columns = os.environ.get("COLUMNS", "")
        try:
            width = int(columns) if columns.isdecimal() else os.get_terminal_size().columns
        except OSError:
            width = 80
        super().__init__(prog, width=max(width - 2, 20))


def add_verb(
    verbs: Verbs, name: str, work: Work, summary: str, examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """A verb with the options that all have. summary: a sentence without its full stop. examples: command lines."""
    lines = "".join(f"\n  {example}" for example in examples)
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:{lines}" if examples else None,
        formatter_class=HelpFormatter,
    )
    parser.set_defaults(work=work, examples=tuple(examples))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def number(least: int, most: int) -> Callable[[str], int]:
    """A type for argparse: a whole number in a range."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not least <= int(text[:18]) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return int(text)

    return parse


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_opaque(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--opaque",
        choices=("skip", "error"),
        default="skip",
        help="values that are neither tensors nor plain data: leave them out (skip, the default) or refuse the file (error)",
    )


def add_choice(parser: argparse.ArgumentParser) -> None:
    pattern = "a regular expression, searched for anywhere in the name; may be given several times"
    parser.add_argument(
        "--include", metavar="REGEX", action="append", help=f"only tensors whose names match: {pattern}"
    )
    parser.add_argument("--exclude", metavar="REGEX", action="append", help="not the tensors whose names match")


def add_progress(parser: argparse.ArgumentParser) -> None:
    add_switch(parser, "progress", None, "a bar; by default if the standard error output is a terminal")


def add_switch(parser: argparse.ArgumentParser, name: str, default: bool | None, what: str) -> None:
    """`--name` and `--no-name`."""
    parser.add_argument(f"--{name}", action="store_true", default=default, help=f"show {what}")
    parser.add_argument(
        f"--no-{name}", action="store_false", dest=name, default=default, help=f"do not show {what.partition(';')[0]}"
    )


def open_headers(path: str, opaque: str = "skip") -> OpenSource:
    """For verbs that read no tensors: the reader alone, without the classes of handles, whose import takes a while."""
    from .._files.source import open_source

    return open_source(path, opaque=opaque, backend="pread")  # type: ignore[arg-type]


def open_file(path: str, opaque: str = "skip") -> File:
    """For verbs that read tensors. Mapped, which looks at numbers three times as fast as reading copies of them."""
    from .._files.file import open as open_path

    return open_path(path, opaque=opaque)  # type: ignore[arg-type]


def chosen(names: Sequence[str], include: Sequence[str] | None, exclude: Sequence[str] | None) -> Sequence[str]:
    """The names that the options of add_choice() leave."""
    if not include and not exclude:
        return names
    from .._modules.filter import PathFilter

    wanted = PathFilter().with_regexes(include) if include else PathFilter.all()
    unwanted = PathFilter().with_regexes(exclude or ())
    return [name for name in names if wanted.matches(name) and not unwanted.matches(name)]
