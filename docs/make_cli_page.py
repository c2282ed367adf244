"""make_cli_page.py [-]: writes docs/cli.md, or prints it, from the help texts of the command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from weightstore._cli.completion import verbs_of
from weightstore._cli.main import DESCRIPTION, EPILOG, make_parser

INTRODUCTION = f"""# The command

<!-- made by docs/make_cli_page.py from the help texts; do not edit -->

`weightstore`: {DESCRIPTION[0].lower()}{DESCRIPTION[1:]}

{EPILOG} An error is one line; `--debug` shows its traceback. `--json` prints JSON for programs. Names that have control
characters are printed in quotes and with escapes. Output to a terminal has colours and bars if the package rich is installed:
`pip install "weightstore[cli]"`. `weightstore --version` prints the version.
"""


def page() -> Iterator[str]:
    yield INTRODUCTION
    parsers = dict(verbs_of(make_parser()))
    yield "| verb | |\n|---|---|\n" + "".join(
        f"| [`{verb}`](#{verb}) | {_cell(parser.description or '')} |\n" for verb, parser in parsers.items()
    )
    for verb, parser in parsers.items():
        yield f"\n## {verb}\n\n{parser.description}\n"
        actions = [action for action in parser._actions if action.dest not in ("help", "debug")]
        if actions:
            yield "\n| argument | |\n|---|---|\n" + "".join(map(_row, actions))
        if examples := parser.get_default("examples"):
            yield "\n```sh\n" + "\n".join(examples) + "\n```\n"


def _row(action: argparse.Action) -> str:
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest)
    if not action.option_strings:
        shown = f"`{value}`"
    elif action.nargs == 0:
        shown = ", ".join(f"`{flag}`" for flag in action.option_strings)
    else:
        shown = ", ".join(f"`{flag} {value}`" for flag in action.option_strings)
    return f"| {_cell(shown)} | {_cell(action.help or '')} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    text = "".join(page())
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text)
    else:
        Path(__file__).with_name("cli.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
