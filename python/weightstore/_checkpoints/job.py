"""Long calls of torch.classes.store that can be watched and ended: TorchScript knows neither callbacks nor signals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from .._files.progress import Progress, reporting
from .torch_errors import translated

_POLL_SECONDS = 0.05
_log = logging.getLogger(__name__)


class Job:
    """A method of `impl`, which has `progress()` and `cancel()` beside it, called on a thread of its own, so that whoever
    waits hears of Ctrl-C."""

    def __init__(self, impl: Any, call: Callable[[], None], progress: Progress | bool | None) -> None:
        self._impl = impl
        self._progress = progress
        self._failure: BaseException | None = None
        self._ended = threading.Event()  # a Thread whose join() is interrupted may take itself for dead
        # Not a daemon: a program that ends waits for its checkpoint.
        threading.Thread(target=self._work, args=(call,), name="weightstore-work").start()

    def _work(self, call: Callable[[], None]) -> None:
        try:
            with translated():
                call()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended.set()

    def wait(self) -> None:
        """What `progress` raises, or an interrupt, ends the call and is raised when it has ended. When it was too late
        for that, an error would say that nothing was done: it is logged."""
        with reporting(self._progress) as report:
            try:
                while not self._ended.wait(_POLL_SECONDS):
                    if report is not None and report(*self._impl.progress()) is False:
                        self._impl.cancel()
                if self._failure is None and report is not None:
                    report(*self._impl.progress())
            except BaseException as error:
                # Again and again: the call may have begun, and forgotten what it was told before, only now.
                while not self._ended.is_set():
                    self._impl.cancel()
                    self._ended.wait(_POLL_SECONDS)
                if self._failure is not None or not isinstance(error, Exception):
                    raise
                _log.exception("progress raised when the work was done")
            if self._failure is not None:
                raise self._failure
