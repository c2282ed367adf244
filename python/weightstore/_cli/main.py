"""The entry point: parses arguments, calls a verb, and turns errors into a line and a status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from .. import __version__
from ..errors import OperationCancelled, StoreError
from .options import HelpFormatter
from .output import safe

DESCRIPTION = "Looks into, checks, compares and converts files, sets and checkpoints of weights."
EPILOG = "Exit status: 0 for yes, 1 for no (files differ, a check fails), 2 when the question could not be answered."


# The module of each verb. Only that of the verb that is called is imported.
MODULES = {
    "inspect": "inspect",
    "list": "listing",
    "show": "show",
    "html": "html",
    "convert": "convert",
    "diff": "diff",
    "verify": "verify",
    "set-metadata": "metadata",
    "build-torch": "installation.build_torch",
    "completion": "completion",
    **dict.fromkeys(("version", "cmake-dir", "include-dir", "pkgconfig-dir"), "installation.directories"),
}


class Parser(argparse.ArgumentParser):
    """Names of files come from other people: also in a message about wrong arguments they are only text."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"{self.prog}: {safe(message)}\n")


def make_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser of one verb, or of all."""
    from importlib import import_module

    parser = Parser(prog="weightstore", description=DESCRIPTION, epilog=EPILOG, formatter_class=HelpFormatter)
    parser.add_argument("--version", action="version", version=f"weightstore {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb", prog="weightstore")
    names = [MODULES[verb]] if verb in MODULES else dict.fromkeys(MODULES.values())
    for name in names:
        import_module(f".{name}", __package__).add_to(verbs)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command, and returns its exit status. Help and wrong arguments raise SystemExit, as argparse does."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parsed = make_parser(given[0] if given else None).parse_args(given)
    for stream in (sys.stdout, sys.stderr):  # names may have characters that the terminal's encoding lacks
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = int(parsed.work(parsed))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # as in `weightstore list FILE | head`; what is left to be flushed goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except (StoreError, OSError, MemoryError, LookupError, TypeError, ValueError, ImportError) as error:
        if parsed.debug:
            raise
        if isinstance(error, OperationCancelled):
            return 130
        print(f"weightstore: {safe(_text_of(error))}", file=sys.stderr)
        return 2


def command() -> int:
    """`main` for a process that ends with it. Objects are not collected one by one at its end, which would take as long as
    reading a header does."""
    import gc

    try:
        return main()
    finally:
        gc.freeze()


def _text_of(error: BaseException) -> str:
    text = str(error) or type(error).__name__
    if isinstance(error, (StoreError, OSError)):
        return text
    # Not an error that this package words for people: say what it is, and how to see more.
    return f"{text} ({type(error).__name__}; --debug shows where)"
