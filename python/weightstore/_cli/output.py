"""Text for a terminal: names from files are only ever text, and colours are for terminals."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any


def safe(text: str, most: int | None = None) -> str:
    """The text itself if it is printable, else in quotes and with escapes. A name could otherwise move the cursor, or write
    right to left. most: longer text is cut."""
    cut = text
    if most is not None and len(text) > most:
        cut = text[:most]
    shown = cut if cut.isprintable() else repr(cut)
    return shown if len(cut) == len(text) else f"{shown}... ({len(text)} characters)"


def width(text: str) -> int:
    """How many columns printable text takes."""
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


def show_name(name: str) -> tuple[str, int]:
    """A name and its width, as columns need it."""
    shown = safe(name)
    return shown, width(shown)


def table(rows: Iterable[Sequence[str]], right: Sequence[int] = (), indent: str = "") -> str:
    """Rows as lines of columns. right: the columns that are aligned at their right. The last column is not padded."""
    lines = [list(row) for row in rows]
    if not lines:
        return ""
    widths = [max(width(row[column]) for row in lines) for column in range(len(lines[0]))]
    text = []
    for row in lines:
        cells = []
        for column, cell in enumerate(row):
            space = " " * (widths[column] - width(cell))
            if column in right:
                cells.append(space + cell)
            else:
                cells.append(cell if column == len(row) - 1 else cell + space)
        text.append(indent + "  ".join(cells).rstrip() + "\n")
    return "".join(text)


def print_json(value: Any) -> None:
    """One document. Text is escaped to ASCII, so that no encoding and no terminal can spoil it."""
    import json

    json.dump(value, sys.stdout, indent=2, default=str)
    sys.stdout.write("\n")


class Style:
    """Colours, where the output is a terminal and the package rich is installed (`pip install 'weightstore[cli]'`). rich knows
    what terminals can, and obeys NO_COLOR and TERM."""

    def __init__(self, stream: IO[str]) -> None:
        self._system: Any = None
        if stream.isatty():
            try:
                from rich.console import Console

                self._system = Console(file=stream)._color_system
            except ImportError:
                pass

    def __call__(self, text: str, style: str) -> str:
        """style: in rich's words, such as "bold" or "red"."""
        if self._system is None or not text:
            return text
        from rich.style import Style as RichStyle

        return str(RichStyle.parse(style).render(text, color_system=self._system))
