"""The plan of a save by very many ranks, on fake ranks in one process: nothing is written."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from weightstore import _core
from weightstore._chunks import index as index_file
from weightstore._chunks.layout import FileTensor, WholeLayout
from weightstore._dcp.finishing import make_index
from weightstore._dcp.planning import RankPlan, Written
from weightstore.dcp import StorageWriter

COLUMNS = 16384


def fake_plans(ranks: int, tensors: int, total: int) -> list[SavePlan]:
    """Matrices of float32 sharded by rows over all ranks."""
    rows = total // tensors // (4 * COLUMNS) // ranks * ranks
    size = torch.Size((rows, COLUMNS))
    properties = TensorProperties(dtype=torch.float32)
    plans = []
    for rank in range(ranks):
        begin, count = torch.Size((rows // ranks * rank, 0)), torch.Size((rows // ranks, COLUMNS))
        data = TensorWriteData(ChunkStorageMetadata(begin, count), properties, size)
        items = [
            WriteItem(MetadataIndex(f"layers.{number}.weight", begin), WriteItemType.SHARD, tensor_data=data)
            for number in range(tensors)
        ]
        plans.append(SavePlan(items, planner_data={}))
    return plans


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--tensors", type=int, default=300)
    parser.add_argument("--tb", type=float, default=10.0)
    options = parser.parse_args()
    plans = fake_plans(options.ranks, options.tensors, int(options.tb * 1e12))
    shape = tuple(plans[0].items[0].tensor_data.size)
    print(f"{options.ranks} ranks, {options.tensors} tensors of {list(shape)}, {options.tb:g} TB")

    begin = time.perf_counter()
    layout = WholeLayout(
        [FileTensor(f"layers.{i}.weight", "F32", shape) for i in range(options.tensors)], 5 * 10**9, True
    )
    seconds = time.perf_counter() - begin
    verdict = "reached" if seconds <= 2 else "NOT REACHED"
    print(f"  {verdict:<12} {seconds:.3f} s to plan {len(layout.files)} files without the plans of ranks (at most 2)")

    planner = DefaultSavePlanner()
    begin = time.perf_counter()
    global_plans, metadata = planner.create_global_plan(plans)
    torchs = time.perf_counter() - begin
    with TemporaryDirectory() as folder, mock.patch.object(_core, "create_file"):
        writer = StorageWriter(Path(folder) / "c", layout="whole")
        writer.set_up_storage_writer(True)
        global_plans = [writer.prepare_local_plan(plan) for plan in global_plans]
        begin = time.perf_counter()
        made = writer.prepare_global_plan(global_plans)
        ours = time.perf_counter() - begin
        verdict = "reached" if ours <= 0.1 * torchs else "NOT REACHED"
        print(
            f"  {verdict:<12} {ours:.2f} s beside {torchs:.2f} s of torch's planner: {ours / torchs:.1%} (at most 10%)"
        )
        written = sum(torch.Size(item.tensor_data.chunk.sizes).numel() * 4 for item in made[0].items)
        print(f"  each rank writes {written / 1e9:.2f} GB, its share")
        show_index(writer, made, metadata)


def show_index(writer: StorageWriter, plans: list[SavePlan], metadata: object) -> None:
    results = []
    for plan in plans:
        storage: RankPlan = plan.storage_data
        assert storage.places is not None
        for item, place in zip(plan.items, storage.places, strict=True):
            assert place is not None
            results.append(WriteResult(item.index, 0, Written(storage.files[place.file], item.index.fqn, 0, 0)))
    for name, whole in (("whole", writer._whole), ("per-rank", None)):
        begin = time.perf_counter()
        text = make_index("0" * 16, metadata, results, whole, None).encode()  # type: ignore[arg-type]
        seconds = time.perf_counter() - begin
        verdict = "reached" if len(text) <= index_file.LARGEST else "NOT REACHED"
        print(
            f"  {verdict:<12} {len(text) / 1e6:.1f} MB of index in {seconds:.1f} s, layout {name} (at most {index_file.LARGEST / 1e6:.0f})"
        )


if __name__ == "__main__":
    main()
