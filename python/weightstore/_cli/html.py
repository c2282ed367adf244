"""``weightstore html``: writes a page about a file, or about the differences of two."""

from __future__ import annotations

import argparse
from contextlib import ExitStack

from . import options
from .output import safe
from .progress import bar


def add_to(verbs: options.Verbs) -> None:
    parser = options.add_verb(
        verbs,
        "html",
        _html,
        "write a page that shows a file, or how two files differ, in a browser",
        (
            "weightstore html model.safetensors -o model.html --open",
            "weightstore html model.safetensors -o model.html --values",
            "weightstore html before.safetensors after.safetensors -o changes.html",
        ),
    )
    parser.add_argument("path", help=options.PATH_HELP)
    parser.add_argument("other", nargs="?", help="the same; to compare with")
    parser.add_argument(
        "-o", "--output", metavar="PAGE", default="report.html", help="the page; report.html by default"
    )
    parser.add_argument(
        "--values",
        action="store_true",
        help="also read the data: statistics, histograms, images of matrices, and for two files how far values differ",
    )
    parser.add_argument("--open", action="store_true", help="show the page in a browser")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the output even if it is not a page of weightstore"
    )
    options.add_opaque(parser)
    options.add_progress(parser)


def _html(arguments: argparse.Namespace) -> int:
    from .._look.report import html_report

    with ExitStack() as stack:
        paths = [path for path in (arguments.path, arguments.other) if path is not None]
        files = [stack.enter_context(options.open_file(path, arguments.opaque)) for path in paths]
        report = stack.enter_context(bar(arguments.progress if arguments.values else False, "reading"))
        html_report(
            *files,
            output=arguments.output,
            values=arguments.values,
            overwrite=arguments.overwrite,
            open=arguments.open,
            progress=report,
        )
    print(safe(arguments.output))
    return 0
