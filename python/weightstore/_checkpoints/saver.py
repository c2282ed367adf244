"""Saves the tables and tensors of a training job as a sharded checkpoint. docs/saver.md describes checkpoints."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from .. import errors
from .._files.progress import Progress, check_progress
from .._files.sizes import Size
from .._torch_library.loading import load as load_library
from . import arguments, parts
from .background_call import BackgroundCall
from .group_saver import Together
from .parts import Part
from .ranks import Ranks, ranks_of, together
from .torch_errors import translated

if TYPE_CHECKING:
    import torch

_LONGEST_TIMEOUT = 31_536_000.0  # a year: JSON has no infinity


class Saver:
    """Saves one shard. Every shard makes a Saver and calls `save`. The checkpoint is complete, and replaces the previous one,
    when `save` returns on shard 0.

    hashtables: name to `HashTable`, or to `torch.classes.store.HashTable`; each shard saves its own. The key must be the
        table's `name()`.
    tensors: name to tensor, or (name, tensor) pairs; only shard 0 saves them. Of a DTensor each rank of its mesh saves its
        part; replicas are saved once, by the first of these ranks. So give all shards their DTensors.
    filter_func: gets the list of blocks (`tensor_name()`, `slice_info()`, `nbytes()`, `dtype()`, `shape()`, `kind()`) and
        returns the blocks to save.
    layout: "plain" (SafeTensors with a Hugging Face index) or "recis" (as RecIS reads and writes).
    durable: the checkpoint survives a power failure.
    checksums: write a crc32c of every block, for `Loader(verify=...)` and `CheckpointReader.verify`; the recis layout has no
        place for them.
    max_block_bytes: cut tables into blocks of about this size: bytes, or text such as "1MiB". By default 1 MiB for "plain",
        uncut for "recis".
    overwrite: for "recis", replace an existing checkpoint; for "plain", also replace a set that another tool wrote.
    attempt: a name for the save, such as the step: the same on all shards, and new for every save of a run. Shards other
        than 0 wait until shard 0 begins the save of this name. Without it the ranks of an initialised torch.distributed
        agree on one, and other shards count their saves; docs/saver.md says what is refused then.
    run: a name for this run of the job: the same on all shards, and new whenever the job is started. Needed when you run
        the shards one after another (together with `attempt`), or when processes of an earlier run may still save here.
    timeout: seconds to wait for other shards.
    progress: called as progress(done, total, name) in bytes; returning False or raising cancels. True: a tqdm bar.

    Ctrl-C cancels `save`, too. A save that is cancelled or fails leaves the previous checkpoint in place.
    """

    def __init__(
        self,
        shard_index: int = 0,
        shard_num: int = 1,
        parallel: int = 8,
        path: str | os.PathLike[str] = ".",
        hashtables: Mapping[str, Any] | None = None,
        tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None = None,
        filter_func: Callable[[list[Any]], list[Any]] = lambda x: x,
        *,
        layout: Literal["plain", "recis"] = "plain",
        durable: bool = True,
        checksums: bool = True,
        max_block_bytes: Size | None = None,
        overwrite: bool = False,
        attempt: str | int | None = None,
        run: str | int | None = None,
        timeout: float = 600.0,
        progress: Progress | bool | None = None,
    ) -> None:
        import torch

        load_library()
        self._path = arguments.path_text(path)
        self._shard_index = arguments.whole_number("shard_index", shard_index)
        self._shard_num = arguments.whole_number("shard_num", shard_num)
        self._hashtables = arguments.tables_by_name(hashtables)
        self._tensors = arguments.tensors_by_name(tensors)
        self._filter_func = filter_func
        self._attempt = None if attempt is None else str(attempt)
        self._progress = progress
        check_progress(progress)
        arguments.check_callable("filter_func", filter_func)
        workers = arguments.whole_number("parallel", parallel)
        self._options: dict[str, Any] = {
            "layout": layout,
            "durable": durable,
            "checksums": checksums,
            "max_block_bytes": 0 if max_block_bytes is None else arguments.block_bytes(max_block_bytes),
            "overwrite": overwrite,
            "run": "" if run is None else str(run),
            "timeout": min(arguments.seconds("timeout", timeout), _LONGEST_TIMEOUT),
        }
        # Says, at each save, what of its tensors this shard saves.
        self._share: Callable[[Mapping[str, torch.Tensor]], Mapping[str, Part]] = functools.partial(
            parts.of_first_shard, self._shard_index
        )
        self._staging: dict[str, torch.Tensor] = {}
        self._running: Future[None] | None = None
        with translated():
            self._impl = torch.classes.store.Saver(self._shard_index, self._shard_num, workers, self._path)
            self._configure(self._attempt or "")

    @staticmethod
    def from_process_group(
        path: str | os.PathLike[str],
        parallel: int = 8,
        hashtables: Mapping[str, Any] | None = None,
        tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None = None,
        filter_func: Callable[[list[Any]], list[Any]] = lambda x: x,
        *,
        group: Any = None,
        **options: Any,
    ) -> Saver:
        """A saver for the ranks of a process group of torch.distributed, the default one if `group` is None. Made, and called, on
        all ranks. Each rank saves its own tables and its parts of DTensors. All other tensors have the same values on all
        ranks, and each of them is saved by one rank, so that the ranks write equally many bytes.

        The ranks compare names, types and shapes before anything is written. `save` returns on all ranks when the checkpoint is
        complete, or raises the same error on all of them, which names the rank that failed.

        options: as for `Saver`, but for `attempt` and `run`, on which the ranks agree.
        """
        for name in ("attempt", "run"):
            if name in options:
                raise TypeError(f"from_process_group() takes no {name}: the ranks agree on one")
        return GroupSaver(ranks_of(group), path, parallel, hashtables, tensors, filter_func, options)

    def __repr__(self) -> str:
        return (
            f"<Saver {self._path!r}, shard {self._shard_index} of {self._shard_num}, {len(self._hashtables)} tables, "
            f"{len(self._tensors)} tensors>"
        )

    def save(self) -> None:
        """Saves. Returns on shard 0 when the checkpoint is complete, on other shards when shard 0 has begun this save and
        can use their part."""
        blocks = self._blocks(self._parts)
        BackgroundCall(self._impl, lambda: self._impl.save(blocks.pop()), self._progress).wait()

    def deferred(self, parts: Mapping[str, Part]) -> Callable[[], None]:
        """Takes snapshots of the tables, and returns a function that saves them and these parts instead of the saver's tensors, once and
        on any thread. The caller leaves the parts as they are until then."""
        blocks = self._blocks(lambda: parts)

        def save() -> None:
            with translated():
                self._impl.save(blocks.pop())

        return save

    def save_async(self) -> Future[None]:
        """Saves the tables and tensors of this moment in the background. Copies the tensors into memory that is kept for the
        next call; tables copy a page when it is first written to. When this returns, shard 0 has locked the directory: a
        later save into it is refused until this one has ended."""
        blocks = self._blocks(self._staged)
        begun = False
        try:
            with translated():
                self._impl.begin()
            begun = True
            future = self._start(lambda: self._impl.save(blocks.pop()))
        except BaseException as error:
            # An error keeps its frames alive, and must not keep the copies alive.
            blocks.clear()
            self._staging.clear()
            # A begin() that fails has told shard 0 itself. An interrupt may come after a begin() that succeeded.
            if begun or not isinstance(error, Exception):
                self._give_up(error)
            raise
        self._running = future
        return future

    def _start(self, save: Callable[[], None]) -> Future[None]:
        """Calls `save` on one thread and waits for it on another. Both are started here, because a program that exits cannot
        start threads. The one that waits is started first, because a save that has begun cannot be taken back."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        begun: queue.SimpleQueue[BackgroundCall | None] = queue.SimpleQueue()

        def wait() -> None:
            call = begun.get()
            if call is None:
                return
            try:
                call.wait()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=wait, name="weightstore-save").start()
        call = None
        try:
            call = BackgroundCall(self._impl, save, self._progress)
        finally:
            begun.put(call)
        return future

    def _blocks(self, find_parts: Callable[[], Mapping[str, Part]]) -> list[list[Any]]:
        """The list of blocks to save, inside another list from which the caller takes it out: an error that somebody keeps
        must not keep the snapshots of the tables alive."""
        self._agree()
        try:
            with translated():
                blocks = self._impl.make_write_blocks(self._hashtables, {})
                blocks += self._impl.make_part_blocks(*parts.by_kind(find_parts()))
            return [arguments.chosen_blocks(self._filter_func(blocks))]
        except BaseException as error:
            self._give_up(error)
            raise

    def _give_up(self, error: BaseException) -> None:
        self._impl.give_up(f"{type(error).__name__}: {error}")

    def _configure(self, attempt: str, run: str | None = None) -> None:
        options = {**self._options, "attempt": attempt}
        self._impl.configure(json.dumps(options if run is None else {**options, "run": run}))

    def _agree(self) -> None:
        """Refuses a second save at the same time, and agrees on the name of the save with the process group, if there is one."""
        problem = ""
        if self._running is not None and not self._running.done():
            problem = "the save that save_async() began has not ended; wait for its result"
        if not self._is_in_group():
            if problem:
                self._impl.skip()
                raise errors.make("conflict", problem, format="checkpoint")
            with translated():
                self._configure(self._attempt or "")
            return
        import torch.distributed as dist

        # A shard that cannot save takes part, too. Otherwise the others would wait for its next save.
        told: list[Any] = [None] * self._shard_num
        dist.all_gather_object(told, (self._shard_index, secrets.token_hex(8), problem))
        problems = {shard: problem for shard, _, problem in told if problem}
        if self._shard_index in problems:
            raise errors.make("conflict", problem, format="checkpoint")
        if problems:
            shard, problem = min(problems.items())
            raise errors.make("conflict", f"shard {shard} cannot save: {problem}", format="checkpoint")
        if sorted(shard for shard, _, _ in told) != list(range(self._shard_num)):
            raise errors.make(
                "invalid_argument",
                f"the ranks of the process group save as shards {[shard for shard, _, _ in told]}; every rank needs a "
                "shard of its own",
                format="checkpoint",
            )
        name = next(name for shard, name, _ in told if shard == 0)
        with translated():
            self._configure(name, self._options["run"] or name)

    def _is_in_group(self) -> bool:
        if self._attempt or self._shard_num == 1:
            return False
        import torch.distributed as dist

        return dist.is_available() and dist.is_initialized() and dist.get_world_size() == self._shard_num

    def _parts(self) -> Mapping[str, Part]:
        """What of the tensors this shard saves."""
        return self._share(self._tensors)

    def _staged(self) -> Mapping[str, Part]:
        """The same, in memory of this saver."""
        import torch

        found = self._parts()
        self._impl.check_tensors({name: part.values for name, part in found.items()})
        # Outside inference mode: a tensor that is made inside it can never be written to outside.
        with torch.inference_mode(False), torch.no_grad():
            for name, part in found.items():
                known = self._staging.get(name)
                if known is None or known.shape != part.values.shape or known.dtype != part.values.dtype:
                    self._staging[name] = torch.empty(part.values.shape, dtype=part.values.dtype, device="cpu")
                self._staging[name].copy_(part.values.detach())
        return {name: dataclasses.replace(part, values=self._staging[name]) for name, part in found.items()}


class GroupSaver(Together, Saver):
    """What `Saver.from_process_group` returns."""

    def __init__(
        self,
        ranks: Ranks,
        path: str | os.PathLike[str],
        parallel: int,
        hashtables: Mapping[str, Any] | None,
        tensors: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]] | None,
        filter_func: Callable[[list[Any]], list[Any]],
        options: Mapping[str, Any],
    ) -> None:
        self._ranks = ranks
        make = super().__init__
        together(
            ranks, lambda: make(ranks.rank, ranks.size, parallel, path, hashtables, tensors, filter_func, **options)
        )


def split_sparse_dense_state_dict(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of a state dict, and everything else."""
    sparse = {name: value for name, value in state.items() if hasattr(value, "hashtable_tag")}
    return sparse, {name: value for name, value in state.items() if name not in sparse}
