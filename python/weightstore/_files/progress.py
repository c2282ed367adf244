"""From what a caller gives as `progress` to what the core calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import errors

Progress = Callable[[int, int, str], object]
"""Called as progress(done, total, name), in bytes; returning False cancels."""


def check_progress(progress: Progress | bool | None) -> None:
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress is {progress!r}; it is None, True or a callable")


class Meter:
    """One scale for an operation that has several stages, in bytes."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def stage(self) -> Progress | None:
        """The callback for a stage that begins now and counts from 0. Call `advance` after the stage."""
        progress, before, total = self._progress, self._done, self._total
        return None if progress is None else lambda done, _, name: progress(before + done, total, name)

    def advance(self, nbytes: int) -> None:
        self._done += nbytes

    def tell(self, name: str) -> None:
        """Calls `progress` as the core does. Raises OperationCancelled if it returns False."""
        if self._progress is not None and self._progress(self._done, self._total, name) is False:
            raise errors.make("cancelled", "the progress callback asked to stop")


@contextmanager
def reporting(progress: Progress | bool | None) -> Iterator[Progress | None]:
    """None and False: silence. True: a tqdm bar when tqdm is installed. A callable: itself."""
    check_progress(progress)
    if progress is None or progress is False:
        yield None
        return
    if progress is not True:
        yield progress
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        import logging

        logging.getLogger(__name__).warning("progress=True shows nothing: tqdm is not installed")
        yield None
        return
    with tqdm(unit="B", unit_scale=True, unit_divisor=1000) as bar:

        def show(done: int, total: int, name: str) -> None:
            bar.total = total
            bar.set_postfix_str(name, refresh=False)
            bar.update(done - bar.n)

        yield show
