"""Writes checkpoints for torch.distributed.checkpoint. Imports torch."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter as TorchStorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _core, errors
from .._chunks import index as index_file
from .._chunks.layout import WholeLayout
from .._files.paths import check_local
from .._files.progress import Progress, check_progress
from .._files.sizes import DEFAULT_SHARD_SIZE, Size, parse_size
from . import directory, sharing
from .exchange import new_memory
from .finishing import finish_whole, make_index
from .planning import plan_layout, plan_per_rank, plan_whole
from .rank_writer import RankWriter, WriteOptions
from .staging import Stager

Layout = Literal["per-rank", "whole"]
_LAYOUTS = ("per-rank", "whole")


class StorageWriter(Stager, TorchStorageWriter):
    """For `torch.distributed.checkpoint`: `save` and `async_save` write SafeTensors files, which appear all at once.

    path: the directory of the checkpoint. `checkpoint_id=` of `save` and `async_save` takes its place, so that one writer serves
        many saves; this keeps the memory of `async_save`.
    layout: "per-rank": each rank writes files of its own. "whole": the ranks write whole tensors into files that they share,
        the final files of a Hugging Face model; where ranks cannot write a file together, a warning says so and the layout is
        "per-rank". Both are read by `StorageReader`, and "per-rank" by torch's `HuggingFaceStorageReader`, too.
    max_shard_size: layout "whole": a file is closed when the next tensor would make it larger.
    files: small files that appear together with the checkpoint, such as {"config.json": text}. Only rank 0 uses them.
    durable: the checkpoint survives a power failure.
    checksums: write a crc32c of every tensor, for `verify`.
    overwrite: also replace a model in the directory that another program wrote. A checkpoint of this class is replaced always.
        All other files in the directory stay.
    threads: that write, on each rank; 0: one for each processor, 2 to 8.
    timeout: seconds that a rank waits until it sees the files of rank 0, and for other ranks of its machine.
    exchange: layout "whole": the ranks of a machine put short runs of bytes, as of columns, together in shared memory of 8 MiB a
        rank and write blocks. False: each rank writes its runs one by one.
    progress: called on each rank as progress(done, total, name) in bytes; returning False or raising cancels the save.

    A save that fails leaves the previous checkpoint in place. docs/distributed.md has the rules.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        layout: Layout = "per-rank",
        max_shard_size: Size = DEFAULT_SHARD_SIZE,
        files: Mapping[str, bytes | str] | None = None,
        durable: bool = True,
        checksums: bool = True,
        overwrite: bool = False,
        threads: int = 0,
        timeout: float = 300.0,
        exchange: bool = True,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        if layout not in _LAYOUTS:
            raise errors.make("invalid_argument", f"layout must be one of {', '.join(_LAYOUTS)}, not {layout!r}")
        check_progress(progress)
        self._path: str | None = None
        self._layout = layout
        self._max_bytes = parse_size(max_shard_size, "max_shard_size")
        self._files = directory.check_files(files)
        self._durable = durable
        self._checksums = checksums
        self._overwrite = overwrite
        self._threads = threads
        self._timeout = timeout
        self._progress = progress
        self._staging: directory.Staging | None = None
        self._whole: WholeLayout | None = None
        self._exchange = exchange
        self._memory = -1  # a descriptor, from the local plan until the data is written
        self._process = os.getpid()
        self.reset(path)

    def __repr__(self) -> str:
        return f"<StorageWriter {self._path!r}, layout {self._layout!r}>"

    @property
    def checkpoint_id(self) -> str | None:
        return self._path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        try:
            check_local(os.fspath(checkpoint_id), "checkpoint")
        except (TypeError, errors.StoreError):
            return False
        return True

    # ---- called by torch, in this order ------------------------------------------------------------------------------

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = directory.resolved(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        if self._path is None:
            raise errors.make("invalid_argument", "no directory: pass path= to the StorageWriter, or checkpoint_id=")
        if not kwargs.get("use_collectives", True):
            text = "use_collectives=False is not supported: rank 0 must learn what the others wrote"
            raise errors.make("invalid_argument", text, path=self._path)

    def storage_meta(self) -> StorageMeta | None:
        return StorageMeta(checkpoint_id=self._path)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        assert self._path is not None
        self._close_memory()
        if self._layout == "whole" and self._exchange:
            self._memory = new_memory()
        place = sharing.Place.of(os.path.dirname(self._path), self._memory)
        return dataclasses.replace(plan, storage_data=place)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """On the coordinator: makes the staging directory and, for layout "whole", the files in it."""
        assert self._path is not None
        if not all(plan.usable for plan in plans):
            text = "a planner with enable_plan_caching=True is not supported; leave it out"
            raise errors.make("invalid_argument", text, path=self._path)
        places: list[sharing.Place] = [plan.storage_data for plan in plans]
        whole = self._layout == "whole" and self._can_share(places)
        self._staging = directory.begin(self._path, overwrite=self._overwrite, durable=self._durable)
        try:
            self._whole = plan_layout(plans, self._max_bytes, self._checksums) if whole else None
            if self._whole is None:
                rank_plans = plan_per_rank(self._staging.path, len(plans))
            else:
                for file in self._whole.files:
                    _core.create_file(self._staging.path_of(file.name), file.size)
                here = sharing.Place.of(os.path.dirname(self._path))
                rank_plans = plan_whole(self._staging.path, plans, places, self._whole, here)
        except BaseException:
            self._staging.abandon()
            raise
        return [
            dataclasses.replace(plan, storage_data=storage) for plan, storage in zip(plans, rank_plans, strict=True)
        ]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """On each rank: writes its items into the staging directory, and syncs them."""
        options = WriteOptions(self._durable, self._checksums, self._threads, self._timeout, self._progress)
        future: Future[list[WriteResult]] = Future()
        try:
            future.set_result(RankWriter(plan.storage_data, planner, options, self._memory).write(plan))
        finally:
            self._close_memory()
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, when all ranks have written: headers, indexes and the commit."""
        staging = self._staging
        assert staging is not None
        try:
            written = [result for of_rank in results for result in of_rank]
            index = make_index(staging.save, metadata, written, self._whole, self._path)
            if self._whole is not None:
                finish_whole(staging, self._whole, written)
            for name, data in self._files.items():
                staging.write(name, data)
            staging.write(index_file.NAME, index.encode().encode())
            staging.commit()
        except BaseException:
            staging.abandon()
            raise
        finally:
            self._staging = self._whole = None
        metadata.storage_meta = self.storage_meta()

    def _can_share(self, places: Sequence[sharing.Place]) -> bool:
        why = sharing.why_not_together(places)
        if why is None:
            return True
        warnings.warn(
            f"{self._path}: {why}; so each rank writes files of its own (layout 'per-rank'), and `weightstore convert` makes "
            "whole tensors of them",
            stacklevel=2,
        )
        return False

    def _close_memory(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def __del__(self) -> None:
        if getattr(self, "_memory", -1) >= 0 and os.getpid() == self._process:
            self._close_memory()
