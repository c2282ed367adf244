"""Models of FSDP2 and DDP with their optimizers, and saves in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import weightstore
from support.ranks import pool
from weightstore.dcp import Stager, StorageReader, StorageWriter


def make(kind: str, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model and its optimizer, after one step."""
    torch.manual_seed(seed)
    model: nn.Module = nn.Sequential(nn.Linear(7, 9), nn.LayerNorm(9), nn.Linear(9, 3, bias=False))
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(2, 7)).sum().backward()
    optimizer.step()
    return model, optimizer


def full(state: Any) -> Any:
    if isinstance(state, DTensor):
        return state.full_tensor().clone()
    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return {key: full(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [full(value) for value in state]
    return state


def assert_same(found: Any, expected: Any, path: str = "") -> None:
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), path
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key in expected:
            assert_same(found[key], expected[key], f"{path}.{key}")
    elif isinstance(expected, list):
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_same(one, other, f"{path}.{number}")
    else:
        assert found == expected, path


# ---- on the ranks ----------------------------------------------------------------------------------------------------


def train_and_restore(path: str, saved: str, loaded: str, layout: str) -> None:
    model, optimizer = make(saved, 1)
    state = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
    expected = full(state)
    dcp.save({**state, "step": 12}, storage_writer=StorageWriter(path, layout=layout))

    model, optimizer = make(loaded, 2)
    state = dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))
    target = {**state, "step": 0}
    dcp.load(target, storage_reader=StorageReader(path, verify="lazy"))
    assert target.pop("step") == 12
    set_state_dict(model, optimizer, model_state_dict=target["model"], optim_state_dict=target["optim"])
    assert_same(full(dict(zip(("model", "optim"), get_state_dict(model, optimizer), strict=True))), expected)


def save_twice_in_the_background(path: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(4096.0 * 16).reshape(16, 4096)
    tensor = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    writer = StorageWriter(layout="whole")
    addresses = set()
    for step in (1, 2, 3):
        future = dcp.async_save({"w": tensor, "step": step}, storage_writer=writer, checkpoint_id=f"{path}{step}")
        tensor.to_local().add_(1)  # training goes on
        future.result()
        addresses.add(next(iter(writer._kept.values())).data_ptr())
    assert len(addresses) == 1  # the memory is used again
    for step in (1, 2, 3):
        state = {"w": distribute_tensor(torch.zeros(16, 4096), mesh, [Shard(1)], src_data_rank=None), "step": 0}
        dcp.load(state, storage_reader=StorageReader(f"{path}{step}", verify="lazy"))
        assert state["step"] == step
        assert torch.equal(state["w"].full_tensor(), whole + (step - 1))


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "loaded", "layout"),
    [("fsdp", "fsdp", "per-rank"), ("fsdp", "ddp", "whole"), ("ddp", "fsdp", "per-rank"), ("ddp", "ddp", "whole")],
)
def test_models_and_optimizers(tmp_path: Path, saved: str, loaded: str, layout: str) -> None:
    pool().run(train_and_restore, str(tmp_path / "c"), saved, loaded, layout)
    if layout == "whole":
        with weightstore.open(tmp_path / "c/model.safetensors") as file:
            assert file["model.0.weight"].shape == (9, 7)
            assert file["optim.state.2.weight.exp_avg"].shape == (3, 9)
            assert file.verify() == len(file)


def test_saves_in_the_background(tmp_path: Path) -> None:
    pool().run(save_twice_in_the_background, str(tmp_path / "step"))


def test_a_stager_copies() -> None:
    stager = Stager()
    tensor = torch.arange(6.0).reshape(2, 3)
    shared = {"a": tensor, "b": [tensor.t(), (1, "x")], "c": {"d": None}}
    staged = stager.stage(shared)
    tensor.zero_()
    assert staged["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert staged["b"][0].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert staged["b"][1] == (1, "x")
    assert staged["c"] == {"d": None}


def test_a_stager_does_not_touch_what_a_save_still_needs() -> None:
    stager = Stager()
    first = stager.stage({"w": torch.ones(3)})
    second = stager.stage({"w": torch.zeros(3)})
    assert first["w"].tolist() == [1, 1, 1]
    assert second["w"].tolist() == [0, 0, 0]
    address = second["w"].data_ptr()
    del first, second
    assert stager.stage({"w": torch.ones(3)})["w"].data_ptr() == address
