"""A bar with rate and time left, on the standard error output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .._files.sizes import format_size
from .output import safe

Report = Callable[[int, int, str], object]
_INTERVAL = 0.1  # seconds between two lines


@contextmanager
def bar(wanted: bool | None, title: str) -> Iterator[Report | None]:
    """What to give as `progress`. wanted: None for a bar only if the standard error output is a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield None
        return
    try:
        import rich  # noqa: F401
    except ImportError:
        line = PlainBar(title)
        try:
            yield line.report
        finally:
            line.end()
        return
    with _rich_bar(title) as report:
        yield report


@contextmanager
def _rich_bar(title: str) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total, name: progress.update(task, completed=done, total=total)


class PlainBar:
    """One line that is written again and again."""

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title = title
        self._clock = clock
        self._begin = clock()
        self._last = float("-inf")
        self._length = 0

    def report(self, done: int, total: int, name: str) -> None:
        now = self._clock()
        if now - self._last < _INTERVAL and done < total:
            return
        self._last = now
        self._write(self._text(done, total, name, now - self._begin))

    def end(self) -> None:
        """Removes the line."""
        self._write("")
        sys.stderr.write("\r")
        sys.stderr.flush()

    def _text(self, done: int, total: int, name: str, seconds: float) -> str:
        share = done / total if total else 1.0
        text = f"{self._title} {share:4.0%}  {format_size(done)} of {format_size(total)}"
        if done and seconds > 0:
            rate = done / seconds
            left = round((total - done) / rate)
            text += f"  {format_size(int(rate))}/s  {left // 60}:{left % 60:02} left"
        return f"{text}  {safe(name, 40)}"

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._length))
        sys.stderr.flush()
        self._length = len(text)
