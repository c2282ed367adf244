"""Saves one step, in three parts: agree on it, take what is saved, write it. The first two are done by the caller's thread."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .._checkpoints import parts
from .._checkpoints.parts import Part
from .._checkpoints.ranks import Ranks, together
from .._checkpoints.saver import Saver
from .._checkpoints.spread import spread
from . import step_files
from .agreement import agree_on_tree
from .contents import Contents
from .kept_memory import KeptMemory, as_tensors
from .locks import FileLock
from .run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class SaveOptions:
    durable: bool
    checksums: bool
    parallel: int
    timeout: float


class StepSave:
    """One save of one step. `begin`, `take` and `write` follow each other; `give_up` if one of the first two fails."""

    def __init__(
        self,
        run: RunDirectory,
        ranks: Ranks,
        options: SaveOptions,
        step: int,
        metrics: Mapping[str, float],
        contents: Contents,
    ) -> None:
        self.step = step
        self._run = run
        self._ranks = ranks
        self._options = options
        self._metrics = metrics
        self._contents = contents
        self._lock: FileLock | None = None
        self._staging: str | None = None
        self._state = b""
        self._save: Callable[[], None] | None = None

    def begin(self, *, overwrite: bool) -> None:
        """Rank 0 locks the run, removes what dead saves left, and makes the staging directory."""
        self._staging = together(self._ranks, lambda: self._lock_and_stage(overwrite))[0]

    def take(self, kept: KeptMemory | None) -> None:
        """Takes what is saved as it is now. kept: copies of the tensors go there; None: the caller does not change them meanwhile."""
        contents, ranks = self._contents, self._ranks
        agree_on_tree(ranks, contents.common)
        shared = spread(ranks, as_tensors(contents.tensors))
        told = together(ranks, lambda: self._take(shared, kept), for_first=True)
        if ranks.rank == 0:
            self._state = step_files.state_text(contents.common, told)

    def write(self, ranks: Ranks, prune: Callable[[], None]) -> None:
        """Writes and commits the step; on any thread. ranks: for that thread, and given back by it. prune: called by rank 0 after that,
        while it has the lock."""
        try:
            together(ranks, self._write)
            together(ranks, self._commit)
            if self._ranks.rank == 0:
                prune()
        finally:
            self.give_up()
            ranks.give_back()

    def give_up(self) -> None:
        """Ends the save, and removes what it has written unless it is committed."""
        self._save = None
        staging, lock = self._staging, self._lock
        self._staging = self._lock = None
        if lock is not None:
            if staging is not None:
                shutil.rmtree(staging, ignore_errors=True)
            lock.release()

    # ---- on each rank ------------------------------------------------------------------------------------------------

    def _lock_and_stage(self, overwrite: bool) -> str | None:
        if self._ranks.rank != 0:
            return None
        self._lock = self._run.lock()
        self._run.tidy()
        self._staging = self._run.begin(self.step, overwrite=overwrite)
        return self._staging

    def _take(self, shared: Mapping[str, Part], kept: KeptMemory | None) -> str:
        contents = self._contents
        own = as_tensors(contents.own_tensors)
        found = {**shared, **{name: parts.whole_part(tensor) for name, tensor in own.items()}}
        if kept is not None:
            copies = kept.copies({name: part.values for name, part in found.items()})
            found = {name: dataclasses.replace(part, values=copies[name]) for name, part in found.items()}
        assert self._staging is not None
        session = os.path.basename(self._staging).partition("~")[2].partition(".")[0]  # as random as a save needs
        saver = Saver(
            self._ranks.rank,
            self._ranks.size,
            self._options.parallel,
            self._staging,
            contents.tables,
            attempt=session,
            run=session,
            durable=self._options.durable,
            checksums=self._options.checksums,
            timeout=self._options.timeout,
        )
        self._save = saver.deferred(found)
        return contents.own

    def _write(self) -> None:
        assert self._save is not None
        self._save()

    def _commit(self) -> None:
        """The data is there. Rank 0 adds the small files, and gives the directory its name."""
        if self._ranks.rank != 0:
            return
        assert self._staging is not None
        durable = self._options.durable
        text = step_files.step_text(self.step, self._metrics, self._ranks.size, self._state)
        step_files.write(self._staging, step_files.STATE_FILE, self._state, durable=durable)
        step_files.write(self._staging, step_files.STEP_FILE, text, durable=durable)
        self._run.commit(self._staging, self.step, durable=durable)
        self._staging = None
