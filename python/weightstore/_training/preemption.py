"""Tells a training loop that its job shall end."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from .. import errors


class Preemption:
    """From now on SIGTERM only sets a flag, and calls the handler that was there before, if that is a function."""

    def __init__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            text = "sigterm=True needs the main thread: Python lets only it handle signals"
            raise errors.make("invalid_argument", text)
        self.requested = False
        self._former: Any = signal.getsignal(signal.SIGTERM)
        self._handler = self._handle
        signal.signal(signal.SIGTERM, self._handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        if callable(self._former):
            self._former(number, frame)

    def close(self) -> None:
        """Puts the former handler back, unless somebody has put another one over ours, which may call it."""
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is self._handler:
            signal.signal(signal.SIGTERM, self._former)
