"""Long calls of torch.classes.store that report progress and can be cancelled. TorchScript has neither callbacks nor signals."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from .._files.progress import Progress, reporting
from .torch_errors import translated

_POLL_SECONDS = 0.05
_log = logging.getLogger(__name__)


class BackgroundCall:
    """Calls a method of `impl` on a thread of its own, so that the thread that waits can react to Ctrl-C. `impl` also has the
    methods `progress()` and `cancel()`."""

    def __init__(self, impl: Any, call: Callable[[], None], progress: Progress | bool | None) -> None:
        self._impl = impl
        self._progress = progress
        self._failure: BaseException | None = None
        self._ended = threading.Event()  # instead of join(): an interrupted join() may mark a running thread as ended
        # Not a daemon thread, so that a program that exits waits for its checkpoint.
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
        """Waits for the call. If `progress` raises, or on Ctrl-C, cancels the call and raises the error when the call has
        ended. If it was too late to cancel, an error of `progress` is only logged, because the work is done."""
        with reporting(self._progress) as report:
            try:
                while not self._ended.wait(_POLL_SECONDS):
                    if report is not None and report(*self._impl.progress()) is False:
                        self._impl.cancel()
                if self._failure is None and report is not None:
                    report(*self._impl.progress())
            except BaseException as error:
                # Repeated, because a call that begins only now forgets an earlier cancel().
                while not self._ended.is_set():
                    self._impl.cancel()
                    self._ended.wait(_POLL_SECONDS)
                if self._failure is not None or not isinstance(error, Exception):
                    raise
                _log.exception("progress raised when the work was done")
            if self._failure is not None:
                raise self._failure
