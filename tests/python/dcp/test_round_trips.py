"""State dicts saved by some ranks and loaded by others, in both layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader

from support.placements import assert_same, blank, group, make_state, mesh
from support.ranks import pool
from weightstore.dcp import StorageReader, StorageWriter

LAYOUTS = ["per-rank", "whole"]
# ---- on the ranks ----------------------------------------------------------------------------------------------------


def save_on(world: int, path: str, layout: str, placement: str, options: dict[str, Any]) -> None:
    its, _ = group(world), mesh(world, placement)
    if dist.get_rank() < world:
        writer = StorageWriter(path, layout=layout, **options)
        dcp.save(make_state(world, placement), storage_writer=writer, process_group=its)


def load_on(world: int, path: str, placement: str, stock: bool) -> None:
    its, _ = group(world), mesh(world, placement)
    if dist.get_rank() >= world:
        return
    expected = make_state(world, placement)
    if stock:
        expected = {
            name: tensor for name, tensor in expected.items() if isinstance(tensor, torch.Tensor) and tensor.dim()
        }
    state = blank(expected)
    reader = HuggingFaceStorageReader(path) if stock else StorageReader(path, verify="lazy")
    dcp.load(state, storage_reader=reader, process_group=its)
    assert_same(state, expected)


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("saved", "placement", "loaded", "wanted"),
    [
        (1, "row", 1, "row"),
        (2, "row", 4, "column"),
        (4, "column", 2, "row"),
        (4, "both", 4, "row"),
        (4, "replicated", 2, "replicated"),
        (2, "replicated", 4, "both"),
        (4, "hybrid", 1, "column"),
    ],
)
def test_any_ranks_load_what_others_saved(
    tmp_path: Path, layout: str, saved: int, placement: str, loaded: int, wanted: str
) -> None:
    path = str(tmp_path / "ckpt")
    pool().run(save_on, saved, path, layout, placement, {"max_shard_size": 600})
    pool().run(load_on, loaded, path, wanted, False)
    if layout == "per-rank":
        pool().run(load_on, loaded, path, wanted, True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["ckpt"]
