"""Saver and Loader with DTensors: each rank its part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch

if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
    pytest.skip("this torch has no gloo", allow_module_level=True)

import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from support.placements import MATRICES, assert_same, blank, mesh, values
from support.ranks import RankError, pool


def make_tensors(world: int, placement: str) -> dict[str, Any]:
    where, placements = mesh(world, placement)
    tensors: dict[str, Any] = {
        name: distribute_tensor(values(size), where, placements, src_data_rank=None) for name, size in MATRICES.items()
    }
    tensors["bfloat"] = distribute_tensor(values((16, 4), torch.bfloat16), where, placements, src_data_rank=None)
    packed = values((8, 8), torch.uint8).view(torch.float4_e2m1fn_x2)
    tensors["packed"] = DTensor.from_local(packed, where, [Replicate()] * where.ndim, run_check=False)
    tensors["plain"] = values((3, 3), torch.int64)
    tensors["scalar"] = torch.tensor(3.5, dtype=torch.float64)
    return tensors


def make_table(rank: int, world: int) -> weightstore.HashTable:
    begin, end = 65536 * rank // world, 65536 * (rank + 1) // world
    return weightstore.HashTable("user", [2], torch.float32, begin, end)


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def save_on(world: int, path: str, placement: str, way: str, options: dict[str, Any]) -> None:
    mesh(world, placement)
    rank = dist.get_rank()
    if rank >= world:
        return
    tensors = make_tensors(world, placement)
    table = make_table(rank, world)
    ids = torch.arange(rank * 65536 // world, rank * 65536 // world + 5)
    table.insert(ids, ids[:, None].expand(-1, 2).float())
    saver = weightstore.Saver(rank, world, 2, path, {"user": table}, tensors, attempt="1", timeout=30, **options)
    if way == "async":
        future = saver.save_async()
        for tensor in tensors.values():
            (tensor.to_local() if isinstance(tensor, DTensor) else tensor).zero_()
        future.result()
    else:
        saver.save()


def load_on(world: int, path: str, placement: str, verify: str) -> None:
    mesh(world, placement)
    rank = dist.get_rank()
    if rank >= world:
        return
    expected = make_tensors(world, placement)
    loaded = blank(expected)
    table = make_table(rank, world)
    before = loaded["even"]._version
    weightstore.Loader(path, {"user": table}, loaded, verify=verify).load()
    assert_same(loaded, expected)
    assert loaded["even"]._version > before
    assert all(table.contains(torch.tensor([i])).item() == (rank == i * world // 65536) for i in (3, 4))


def save_partial_on(path: str) -> None:
    where, _ = mesh(2, "row")
    if dist.get_rank() < 2:
        sums = DTensor.from_local(torch.ones(4), where, [Partial()], run_check=False)
        weightstore.Saver(dist.get_rank(), 2, 2, path, tensors={"w": sums}, attempt="1", timeout=30).save()


def save_without_a_part_on(path: str) -> None:
    """Rank 1 saves, but not its part of "w"."""
    where, _ = mesh(2, "row")
    if (rank := dist.get_rank()) < 2:
        w = distribute_tensor(values((8, 2)), where, [Shard(0)], src_data_rank=None)
        tensors = {"w": w} if rank == 0 else {}
        weightstore.Saver(rank, 2, 2, path, tensors=tensors, attempt="2", timeout=30).save()


def save_larger_on(path: str) -> None:
    where, _ = mesh(4, "row")
    tensors = {
        "rows": distribute_tensor(values((256, 16384)), where, [Shard(0)], src_data_rank=None),
        "columns": distribute_tensor(values((256, 16384)), where, [Shard(1)], src_data_rank=None),
    }
    weightstore.Saver(dist.get_rank(), 4, 2, path, tensors=tensors, attempt="1", timeout=30).save()


def bytes_read_by_load(path: str, name: str, dim: int) -> int:
    where, _ = mesh(4, "row")
    tensors = {name: distribute_tensor(torch.zeros(256, 16384), where, [Shard(dim)], src_data_rank=None)}
    loader = weightstore.Loader(path, tensors=tensors, strict=False)

    def count() -> int:
        text = Path(f"/proc/{os.getpid()}/io").read_text()
        return int(text.split("rchar:")[1].split()[0])

    before = count()
    loader.load()
    read = count() - before
    assert torch.equal(tensors[name].full_tensor(), values((256, 16384)))
    return read


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "placement", "loaded", "wanted", "way"),
    [
        (1, "row", 2, "column", "sync"),
        (2, "row", 4, "column", "async"),
        (4, "column", 2, "row", "sync"),
        (4, "both", 4, "row", "async"),
        (4, "replicated", 2, "both", "sync"),
        (4, "hybrid", 1, "column", "async"),
    ],
)
def test_any_ranks_load_what_others_saved(
    tmp_path: Path, saved: int, placement: str, loaded: int, wanted: str, way: str
) -> None:
    path = str(tmp_path / "ckpt")
    pool().run(save_on, saved, path, placement, way, {})
    pool().run(load_on, loaded, path, wanted, "full")
    # Whoever has no ranks sees whole tensors.
    for opened in (path, str(tmp_path / "ckpt/model.safetensors.index.json"), str(tmp_path / "one.safetensors")):
        if opened.endswith("one.safetensors"):
            weightstore.convert(path, opened, checksums=True)
        with weightstore.open(opened, verify="full") as file:
            for name, shape in MATRICES.items():
                assert torch.equal(file[name].torch(), values(shape))
            assert torch.equal(file["deep"][1:4, 2].torch(), values(MATRICES["deep"])[1:4, 2])
            assert torch.equal(file["packed"].torch().view(torch.uint8), values((8, 8), torch.uint8))
            assert not any(name.startswith("even/") for name in file)
    table = make_table(0, 1)
    plain = {name: torch.zeros(shape) for name, shape in MATRICES.items()}
    weightstore.Loader(tmp_path / "one.safetensors", {"user": table}, plain, strict=False).load()
    assert len(table) == 5 * saved
    assert all(torch.equal(plain[name], values(shape)) for name, shape in MATRICES.items())
    assert weightstore.CheckpointReader(path).verify() > 0


def test_what_the_files_hold(tmp_path: Path) -> None:
    path = tmp_path / "ckpt"
    pool().run(save_on, 2, str(path), "column", "sync", {})
    index = (path / "model.safetensors.index.json").read_text()
    assert '"chunked"' in index
    assert '"even":{"shape":[8,12],"chunks":[[0,0],[0,6]]}' in index
    assert '"even/0,6"' in index
    assert '"one"' in index  # one rank has all of it: a plain tensor


def test_each_rank_reads_its_part_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ckpt")
    pool().run(save_larger_on, path)
    share = 256 * 16384 * 4 // 4
    for name in ("rows", "columns"):
        own = pool().run(bytes_read_by_load, path, name, 0 if name == "rows" else 1)
        assert all(share <= read < 1.05 * share for read in own), own
        # Other parts than were saved, in four files: runs of 16 KiB.
        other = pool().run(bytes_read_by_load, path, name, 1 if name == "rows" else 0)
        assert all(share <= read < 1.05 * share for read in other), other


def test_sums_that_are_not_final_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"tensor 'w': is a DTensor of which the ranks have partial sums"):
        pool().run(save_partial_on, str(tmp_path / "ckpt"))


def test_a_part_that_no_rank_saved_is_found_before_the_commit(tmp_path: Path) -> None:
    path = str(tmp_path / "ckpt")
    pool().run(save_on, 2, path, "row", "sync", {})
    with pytest.raises(RankError, match=r"tensor 'w': its chunks have 8 of its 16 elements .*every rank of its mesh"):
        pool().run(save_without_a_part_on, path)
    pool().run(load_on, 2, path, "column", "off")  # the previous checkpoint


def test_the_layout_of_recis_has_only_whole_tensors(tmp_path: Path) -> None:
    with pytest.raises(RankError, match=r"the recis layout has only whole tensors"):
        pool().run(save_on, 2, str(tmp_path / "ckpt"), "row", "sync", {"layout": "recis"})
