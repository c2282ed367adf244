"""The checkpoints of a training run."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from .._checkpoints.ranks import ranks_of, together
from . import retention, step_files
from .background import Background
from .contents import contents_of
from .preemption import Preemption
from .run_directory import RunDirectory
from .saving import SaveOptions, StepSave

if TYPE_CHECKING:
    from .._files.progress import Progress
    from .._files.source import Verify
    from .._modules.filter import PathFilter
    from .._modules.remap import KeyRemapper
    from .restored import Restored

OnBusy = Literal["wait", "skip"]

_log = logging.getLogger("weightstore")


class CheckpointManager:
    """Saves what a training run needs to go on, every so often, and restores it after the run was interrupted, however that happened.

    directory: of the run. Each step is a directory in it, which appears when it is complete.
    max_to_keep: so many of the newest steps stay; None: all of them.
    keep_every: steps that are multiples of this stay, too.
    best: a metric; the step with the best value of it stays, too. Each `save` needs it in its metrics.
    best_mode: "min" or "max": which values of the metric are better.
    async_save: `save` returns when it has copied the tensors, and a thread writes them. The copies need as much memory as the tensors.
    save_every: `should_save` is true for multiples of this.
    on_busy: what `save` does while an earlier one is being written: "wait" for it, or "skip".
    sigterm: SIGTERM makes `should_save` true, instead of ending the program. Earlier handlers are called, too.
    durable: a step survives a power failure once it is saved.
    checksums: write a crc32c of every tensor, for `restore(verify=...)`.
    parallel: threads that write, and at most so many files for each rank.
    process_group: of torch.distributed; the default group if it is initialised. Then every method but `latest`, `steps`, `best`, `metrics`
        and `path` is called on all ranks, and what one rank cannot do is an error on all of them.
    timeout: seconds to wait for other ranks.

    An error of a save in the background is raised by the next call of `save`, `restore`, `wait` or `close`; if there is none, it is
    logged. Leaving `with` closes the manager.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        max_to_keep: int | None = 5,
        keep_every: int | None = None,
        best: str | None = None,
        best_mode: retention.BestMode = "min",
        async_save: bool = True,
        *,
        save_every: int | None = None,
        on_busy: OnBusy = "wait",
        sigterm: bool = False,
        durable: bool = True,
        checksums: bool = True,
        parallel: int = 8,
        process_group: Any = None,
        timeout: float = 600.0,
    ) -> None:
        retention.check_options(max_to_keep, keep_every, best, best_mode)
        if on_busy not in ("wait", "skip"):
            raise errors.make("invalid_argument", f"on_busy is {on_busy!r}; it is 'wait' or 'skip'")
        if save_every is not None and (type(save_every) is not int or save_every < 1):
            raise errors.make("invalid_argument", f"save_every is {save_every!r}; it is a number from 1 on, or None")
        self._run = RunDirectory(directory)
        self._max_to_keep = max_to_keep
        self._keep_every = keep_every
        self._best = best
        self._best_mode: retention.BestMode = best_mode
        self._async_save = async_save
        self._save_every = save_every
        self._on_busy = on_busy
        self._options = SaveOptions(durable, checksums, parallel, timeout)
        self._ranks = ranks_of(process_group)
        self._known_metrics: dict[tuple[int, int], dict[str, float]] = {}
        self._closed = False
        self._kept: Any = None
        self._preemption = Preemption() if sigterm else None
        self._background = Background()
        weakref.finalize(self, self._background.log_error)

    def __repr__(self) -> str:
        return f"<CheckpointManager {self._run.path!r}, {len(self.steps())} steps>"

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception:
            _log.exception("a save in the background failed, too")

    # ---- what there is -----------------------------------------------------------------------------------------------

    @property
    def directory(self) -> str:
        """The directory of the run."""
        return self._run.path

    def steps(self) -> list[int]:
        """The steps that are complete, in order."""
        return self._run.steps()

    def latest(self) -> int | None:
        """The newest complete step; None if there is none."""
        return max(self.steps(), default=None)

    def best(self) -> int | None:
        """The step with the best value of the metric `best`; of equal ones the newest. None if no step has the metric."""
        if self._best is None:
            raise errors.make(
                "invalid_argument", "which step is the best? Name a metric: CheckpointManager(best='loss')"
            )
        return self._best_of(self.steps())

    def metrics(self, step: int) -> dict[str, float]:
        """The metrics of a step."""
        with self._run.reading(step_files.check_step(step)) as path:
            return dict(self._metrics_of(path))

    def path(self, step: int) -> str:
        """The directory of a complete step. `weightstore.open` and the stores take it."""
        number = step_files.check_step(step)
        with self._run.reading(number) as path:
            return path

    # ---- saving ------------------------------------------------------------------------------------------------------

    def should_save(self, step: int) -> bool:
        """Whether to save now: the step is a multiple of `save_every`, or SIGTERM came. With `sigterm`, the ranks ask each other."""
        number = step_files.check_step(step)
        return self.preempted or (self._save_every is not None and number > 0 and number % self._save_every == 0)

    @property
    def preempted(self) -> bool:
        """Whether SIGTERM came, on any rank. Needs `sigterm=True`. Save, leave the loop and close the manager."""
        if self._preemption is None:
            return False
        return any(self._ranks.gather(self._preemption.requested))

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        metrics: Mapping[str, Any] | None = None,
        *,
        overwrite: bool = False,
    ) -> bool:
        """Saves a step. Returns False if it was skipped because an earlier save is still at work.

        state: name to modules, optimizers, anything else with `state_dict()`, hash tables, tensors, arrays and plain values, also nested
            in dicts and lists. `"rng": True` saves the random generators of python, numpy and torch. With many ranks all of it is the
            same on all ranks, or a DTensor, but for `"rng"` and what is inside a `PerRank`.
        metrics: name to number.
        overwrite: replace the step if it is there already, which is an error otherwise.
        """
        self._check_open()
        self._background.raise_error()
        if self._on_busy == "skip" and any(self._ranks.gather(self._background.is_busy)):
            return False
        self._background.wait()

        def prepare() -> StepSave:
            number = step_files.check_step(step)
            checked = step_files.check_metrics(metrics, self._best)
            contents = contents_of(state, self._ranks.rank)
            return StepSave(self._run, self._ranks, self._options, number, checked, contents)

        save = self._prepared(prepare)
        try:
            save.begin(overwrite=overwrite)
            save.take(self._memory() if self._async_save else None)
            ranks = self._ranks.lend() if self._async_save else self._ranks
        except BaseException:
            save.give_up()
            raise
        if self._async_save:
            what = f"saving step {save.step} into {self._run.path}"
            self._background.start(lambda: save.write(ranks, self._prune), what)
        else:
            save.write(ranks, self._prune)
        return True

    def _prepared(self, prepare: Any) -> StepSave:
        made: list[StepSave] = []
        together(self._ranks, lambda: made.append(prepare()))
        return made[0]

    def _memory(self) -> Any:
        from .kept_memory import KeptMemory

        if self._kept is None:
            self._kept = KeptMemory()
        return self._kept

    def wait(self) -> None:
        """Waits until the save in the background is complete, and raises its error."""
        self._background.wait()

    def close(self) -> None:
        """Waits as `wait` does, and gives the memory of the copies back. A closed manager still reads."""
        self._closed = True
        if self._preemption is not None:
            self._preemption.close()
        try:
            self._background.wait()
        finally:
            self._kept = None

    def _check_open(self) -> None:
        if self._closed:
            raise errors.make("invalid_argument", "the manager is closed; make a new one", path=self._run.path)

    # ---- pruning -----------------------------------------------------------------------------------------------------

    def _prune(self) -> None:
        """Removes what need not stay. A step that is being read is left to a later save. An error is logged: the step is saved."""
        try:
            steps = self.steps()
            best = None if self._best is None else self._best_of(steps)
            for step in retention.to_remove(steps, self._max_to_keep, self._keep_every, best):
                self._run.remove(step)
        except (OSError, errors.StoreError) as error:
            _log.warning("old steps in %s could not be removed: %s", self._run.path, error)

    def _best_of(self, steps: Iterable[int]) -> int | None:
        assert self._best is not None
        values: dict[int, float | None] = {}
        for step in steps:
            try:
                with self._run.reading(step) as path:
                    values[step] = self._metrics_of(path).get(self._best)
            except errors.TensorNotFound:
                continue  # removed meanwhile
        return retention.best_of(values, self._best_mode)

    def _metrics_of(self, path: str) -> dict[str, float]:
        found = os.stat(os.path.join(path, step_files.STEP_FILE))
        key = (found.st_ino, found.st_mtime_ns)
        if key not in self._known_metrics:
            self._known_metrics[key] = step_files.read_step(path).metrics
        return self._known_metrics[key]

    # ---- restoring ---------------------------------------------------------------------------------------------------

    def restore(
        self,
        into: Mapping[str, Any] | None = None,
        step: int | None = None,
        *,
        strict: bool = True,
        rename: KeyRemapper | Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
        filter: PathFilter | None = None,
        verify: Verify = "lazy",
        progress: Progress | bool | None = None,
    ) -> Restored | None:
        """Puts a step back into what is there, and returns it: the rest of its state, its number and its metrics. None if there is
        no complete step yet.

        into: name to modules, optimizers, anything else with `load_state_dict()`, tables, tensors and arrays, and `"rng": True`; nested
            as they were saved. Nothing is changed unless all of it fits; the error lists all that does not.
        step: the newest one by default.
        strict: a tensor of a module that the step lacks is an error, and so is one that the module lacks.
        rename: rules for the names of the tensors of modules, as those of a store's `with_key_remapping`.
        filter: which tensors of modules are loaded, by their names in the module.
        verify: compare checksums while reading: "off", "lazy" or "full", as `weightstore.open` does.
        """
        from .restoring import restore_step

        self._background.wait()
        return restore_step(
            self._run,
            self._ranks,
            into,
            None if step is None else step_files.check_step(step),
            strict=strict,
            rename=rename,
            filter=filter,
            verify=verify,
            progress=progress,
        )
