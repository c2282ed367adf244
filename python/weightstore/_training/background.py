"""Work on a thread of its own, one at a time, whose error is not lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("weightstore")


class Background:
    """`start` begins work; `wait` waits for it and raises its error, once."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._what = ""
        self._ended = threading.Event()
        self._ended.set()

    @property
    def is_busy(self) -> bool:
        return not self._ended.is_set()

    def start(self, work: Callable[[], None], what: str) -> None:
        """what: names the work in the log."""
        self._what = what
        self._ended.clear()
        # Not a daemon: a program that ends waits for its checkpoint.
        self._thread = threading.Thread(target=self._run, args=(work,), name="weightstore-checkpoint")
        try:
            self._thread.start()
        except BaseException:
            self._ended.set()
            raise

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Raises the error of the work, unless it was raised before."""
        self._ended.wait()
        self.raise_error()

    def raise_error(self) -> None:
        """The same, without waiting."""
        if not self.is_busy:
            error, self._error = self._error, None
            if error is not None:
                raise error

    def log_error(self) -> None:
        """For an error that nobody has asked for when the program ends."""
        self._ended.wait()
        error, self._error = self._error, None
        if error is not None:
            _log.error("%s failed: %s", self._what, error, exc_info=error)
