"""Saves tables and tensors of a training job as a sharded checkpoint; docs/saver.md tells how one looks."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from . import _checkpoint_arguments, _interruptible, _torch_library, errors
from ._progress import Progress, check
from ._torch_errors import translated

if TYPE_CHECKING:
    import torch

_LONGEST_TIMEOUT = 31_536_000.0  # a year: JSON has no infinity


class Saver:
    """One shard's side of a save. Every shard makes one and calls `save`; the checkpoint is complete, and replaces the one
    before it, when shard 0's `save` returns.

    hashtables: name to `torch.classes.store.HashTable`; each shard saves its own. The key must be the table's `name()`.
    tensors: name to tensor, or (name, tensor) pairs; shard 0 saves them for all.
    filter_func: gets the list of blocks (`tensor_name()`, `slice_info()`, `nbytes()`, `dtype()`, `shape()`, `kind()`) and
        returns those to be saved.
    layout: "plain" (SafeTensors with a Hugging Face index) or "recis" (as RecIS reads and writes).
    durable: what was saved survives a power failure.
    checksum: keep a crc32c of every block, for `CheckpointReader.verify`; the recis layout has no place for them.
    max_block_bytes: cut tables into blocks of about this size; by default 1 MiB for "plain", uncut for "recis".
    overwrite: "recis": replace the checkpoint that is there; "plain": also replace what another tool wrote.
    attempt: an id that is the same on all shards and new for every save, such as the step. By default the shards agree
        about one through torch.distributed where that is initialised, else by waiting for shard 0.
    run: an id of this run of the job, the same on all shards, so that what a run that died left under the same attempt
        is never taken for a part of this save. By default what was saved before the process of shard 0 began does not
        count.
    timeout: seconds to wait for other shards.
    progress: called as progress(done, total, name) in bytes; returning False or raising cancels. True: a tqdm bar.

    Ctrl-C ends `save` too. Whatever ends it, the checkpoint that was there before stays.
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
        checksum: bool = True,
        max_block_bytes: int | None = None,
        overwrite: bool = False,
        attempt: str | int | None = None,
        run: str | int | None = None,
        timeout: float = 600.0,
        progress: Progress | bool | None = None,
    ) -> None:
        import torch

        _torch_library.load()
        self._shard_index = shard_index
        self._shard_num = shard_num
        self._hashtables = _checkpoint_arguments.tables_by_name(hashtables)
        self._tensors = _checkpoint_arguments.tensors_by_name(tensors)
        self._filter_func = filter_func
        self._attempt = None if attempt is None else str(attempt)
        self._progress = progress
        check(progress)
        if not timeout >= 0:
            raise errors.make(
                "invalid_argument", f"timeout is {timeout}; it is a number of seconds", format="checkpoint"
            )
        self._options: dict[str, Any] = {
            "layout": layout,
            "durable": durable,
            "checksum": checksum,
            "max_block_bytes": max_block_bytes or 0,
            "overwrite": overwrite,
            "run": "" if run is None else str(run),
            "timeout": min(float(timeout), _LONGEST_TIMEOUT),
        }
        self._staging: dict[str, torch.Tensor] = {}
        self._running: Future[None] | None = None
        with translated():
            self._impl = torch.classes.store.Saver(
                shard_index, shard_num, parallel, _checkpoint_arguments.path_text(path)
            )
            self._configure(self._attempt or "")

    def save(self) -> None:
        """Saves and returns when this shard's part is written; on shard 0 when the checkpoint is complete."""
        self._refuse_second()
        blocks = self._blocks(lambda: self._tensors)
        _interruptible.Job(self._impl, lambda: self._impl.save(blocks.pop()), self._progress).wait()

    def save_async(self) -> Future[None]:
        """Captures tables and tensors as they are now and saves them in the background. Tensors are copied, into memory
        that is kept for the next call; tables copy a page when it is first written to."""
        self._refuse_second()
        blocks = self._blocks(lambda: self._staged() if self._shard_index == 0 else {})
        # Begun here: a program that ends starts no more threads.
        job = _interruptible.Job(self._impl, lambda: self._impl.save(blocks.pop()), self._progress)
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        self._running = future

        def wait() -> None:
            try:
                job.wait()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=wait, name="weightstore-save").start()
        return future

    def _blocks(self, tensors: Callable[[], Mapping[str, torch.Tensor]]) -> list[list[Any]]:
        """A list with the list of blocks to be saved, to be taken out: an error that somebody keeps must not keep the
        tables as they were."""
        with translated():
            self._configure(self._agreed_attempt())
        try:
            with translated():
                blocks = self._impl.make_write_blocks(self._hashtables, tensors())
            return [list(self._filter_func(blocks))]
        except BaseException as error:
            self._impl.give_up(f"{type(error).__name__}: {error}")
            raise

    def _refuse_second(self) -> None:
        if self._running is not None and not self._running.done():
            raise errors.make(
                "conflict", "the save that save_async() began has not ended; wait for its result", format="checkpoint"
            )

    def _configure(self, attempt: str) -> None:
        self._impl.configure(json.dumps({**self._options, "attempt": attempt}))

    def _agreed_attempt(self) -> str:
        if self._attempt or self._shard_num == 1:
            return self._attempt or ""
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() == self._shard_num):
            return ""  # shard 0 publishes one in the directory
        proposals: list[Any] = [None] * self._shard_num
        dist.all_gather_object(proposals, (self._shard_index, secrets.token_hex(8)))
        return str(dict(proposals)[0])

    def _staged(self) -> dict[str, torch.Tensor]:
        import torch

        self._impl.check_tensors(self._tensors)
        # Outside of inference mode: what is made inside of it can never be written to outside.
        with torch.inference_mode(False), torch.no_grad():
            for name, tensor in self._tensors.items():
                known = self._staging.get(name)
                if known is None or known.shape != tensor.shape or known.dtype != tensor.dtype:
                    self._staging[name] = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                self._staging[name].copy_(tensor.detach())
        return {name: self._staging[name] for name in self._tensors}


def split_sparse_dense_state_dict(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A state dict's tables, and everything else."""
    sparse = {name: value for name, value in state.items() if hasattr(value, "hashtable_tag")}
    return sparse, {name: value for name, value in state.items() if name not in sparse}
