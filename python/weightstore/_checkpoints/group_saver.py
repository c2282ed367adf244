"""What is different in a saver whose shards are the ranks of a process group."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from .. import errors
from .background_call import BackgroundCall
from .parts import Part
from .ranks import Ranks, together
from .spread import spread
from .torch_errors import translated


class Together:
    """The methods of a Saver that are called on all ranks at the same time; a base class that comes before Saver."""

    _impl: Any
    _progress: Any
    _tensors: dict[str, Any]
    _running: Future[None] | None
    _share: Callable[[Mapping[str, Any]], Mapping[str, Part]]
    _ranks: Ranks

    if TYPE_CHECKING:  # Saver's

        def _configure(self, attempt: str, run: str | None = None) -> None: ...
        def _blocks(self, find_parts: Callable[[], Mapping[str, Part]]) -> list[list[Any]]: ...
        def _parts(self) -> Mapping[str, Part]: ...
        def _staged(self) -> Mapping[str, Part]: ...

    def save(self) -> None:
        """Saves. Returns on all ranks when the checkpoint is complete, or raises the same error on all of them."""
        blocks = self._begin(lambda found: found)
        together(self._ranks, BackgroundCall(self._impl, lambda: self._impl.save(blocks.pop()), self._progress).wait)

    def save_async(self) -> Future[None]:
        """Saves the tables and tensors of this moment in the background; the future has a result when the checkpoint is complete, or
        the same error on all ranks."""
        blocks = self._begin(self._copies)

        def save() -> None:
            with translated():
                self._impl.save(blocks.pop())

        # All ranks take part in what the thread tells the others, whatever happens to the save.
        self._running = self._start_together(save, self._ranks.lend())
        return self._running

    def _start_together(self, save: Callable[[], None], writers: Ranks) -> Future[None]:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                together(writers, save)
            except BaseException as error:
                writers.give_back()
                future.set_exception(error)
            else:
                writers.give_back()
                future.set_result(None)

        threading.Thread(target=run, name="weightstore-save").start()
        return future

    def _begin(self, keep: Callable[[Mapping[str, Part]], Mapping[str, Part]]) -> list[list[Any]]:
        """Agrees on what is saved, by whom, and under which name."""
        told = together(self._ranks, self._name_of_save)
        found = spread(self._ranks, self._tensors)

        def take() -> list[list[Any]]:
            kept = keep(found)
            self._share = lambda tensors: kept
            with translated():
                self._configure(told[0], told[0])
            return self._blocks(self._parts)

        taken: list[list[list[Any]]] = []
        together(self._ranks, lambda: taken.append(take()))
        return taken[0]

    def _name_of_save(self) -> str:
        if self._running is not None and not self._running.done():
            text = "the save that save_async() began has not ended; wait for its result"
            raise errors.make("conflict", text, format="checkpoint")
        return secrets.token_hex(8)

    def _agree(self) -> None:
        """`_begin` has done it."""

    def _copies(self, found: Mapping[str, Part]) -> Mapping[str, Part]:
        self._share = lambda tensors: found
        return self._staged()
