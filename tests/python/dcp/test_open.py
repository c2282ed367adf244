"""Checkpoints of many ranks in `weightstore.open` and `convert`: every tensor whole, under its own name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import weightstore
from support.ranks import pool
from weightstore.dcp import StorageWriter

WRITERS = ["per-rank", "whole", "filesystem", "huggingface"]


def tensors() -> dict[str, torch.Tensor]:
    return {
        "rows": torch.arange(77.0).reshape(11, 7),
        "columns": torch.arange(63).reshape(7, 9),
        "deep": torch.arange(210, dtype=torch.int16).reshape(5, 6, 7),
        "plain": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
    }


def save(path: str, kind: str) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    axes = {"rows": 0, "columns": 1, "deep": 1}
    state: dict[str, Any] = {
        name: distribute_tensor(tensor, mesh, [Shard(axes[name])], src_data_rank=None) if name in axes else tensor
        for name, tensor in tensors().items()
    }
    writer: Any
    if kind == "filesystem":
        writer = FileSystemWriter(path)
    elif kind == "huggingface":
        writer = HuggingFaceStorageWriter(path, save_distributed=True)
    else:
        writer = StorageWriter(path, layout=kind)  # type: ignore[arg-type]
    if kind != "huggingface":
        state["step"] = 3
    dcp.save(state, storage_writer=writer)


@pytest.fixture(scope="module", params=WRITERS)
def checkpoint(request: Any, tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("checkpoint") / "c"
    pool().run(save, str(path), request.param)
    return Path(path)


def test_open(checkpoint: Path) -> None:
    with weightstore.open(checkpoint) as file:
        assert set(file) == set(tensors())
        for name, tensor in tensors().items():
            assert torch.equal(file[name].torch(), tensor)
            assert torch.equal(file[name][1:, ...].torch(), tensor[1:])
        again = pickle.loads(pickle.dumps(file))
        assert torch.equal(again["deep"].torch(), tensors()["deep"])
        again.close()
        if (checkpoint / "weightstore.index.json").exists():
            assert file.verify() > 0
            assert [value.name for value in file.left_out] == ["step"]


@pytest.mark.parametrize("target", ["one.safetensors", "model.safetensors.index.json", "one.bpk"])
def test_convert(checkpoint: Path, tmp_path: Path, target: str) -> None:
    weightstore.convert(checkpoint, tmp_path / target, checksums=True)
    with weightstore.open(tmp_path / target) as file:
        assert file.verify() == len(tensors())
        for name, tensor in tensors().items():
            assert torch.equal(file[name].torch(), tensor)
    if target == "one.safetensors":
        stock = safetensors.torch.load_file(tmp_path / target)
        assert all(torch.equal(stock[name], tensor) for name, tensor in tensors().items())


def test_damage_is_found(tmp_path: Path) -> None:
    path = tmp_path / "c"
    pool().run(save, str(path), "per-rank")
    file = path / "shard-00002-model-00001-of-00001.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with weightstore.open(path) as opened, pytest.raises(weightstore.FormatError, match="checksum"):
        opened.verify()
    with pytest.raises(weightstore.FormatError, match="checksum"):
        weightstore.convert(path, tmp_path / "one.safetensors")
    assert not (tmp_path / "one.safetensors").exists()


def test_chunks_that_do_not_make_a_tensor_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    pool().run(save, str(path), "per-rank")
    index = json.loads((path / "weightstore.index.json").read_text())
    chunks = index["tensors"]["rows"]["chunks"]

    def refused(changed: Any, message: str) -> None:
        index["tensors"]["rows"]["chunks"] = changed
        (path / "weightstore.index.json").write_text(json.dumps(index))
        with pytest.raises(weightstore.FormatError, match=message):
            weightstore.open(path)

    refused(chunks[:-1], "of its 77 elements")
    refused([*chunks, chunks[0]], "overlap")
