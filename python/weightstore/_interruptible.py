"""Long calls of torch.classes.store that can be watched and ended: TorchScript knows neither callbacks nor signals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ._progress import Progress, reporting
from ._torch_errors import translated

_POLL_SECONDS = 0.05


def run(impl: Any, call: Callable[[], None], progress: Progress | bool | None) -> None:
    """Does `call`, a method of `impl` that has `progress()` and `cancel()` beside it, on a thread of its own, so that this
    one hears of Ctrl-C. What `progress` raises, or an interrupt, ends the call and is raised when it has ended."""
    failure: list[BaseException] = []
    ended = threading.Event()  # a Thread whose join() is interrupted may take itself for dead

    def work() -> None:
        try:
            with translated():
                call()
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    def tell(report: Progress) -> object:
        done, total = impl.progress()
        return report(done, total, "")

    with reporting(progress) as report:
        threading.Thread(target=work, name="weightstore-work").start()
        try:
            while not ended.wait(_POLL_SECONDS):
                if report is not None and tell(report) is False:
                    impl.cancel()
        except BaseException:
            # Again and again: the call may have begun, and forgotten what it was told before, only now.
            while not ended.is_set():
                impl.cancel()
                ended.wait(_POLL_SECONDS)
            raise
        if failure:
            raise failure[0]
        if report is not None:
            tell(report)
