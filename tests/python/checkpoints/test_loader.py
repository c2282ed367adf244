"""What weightstore.Loader takes for a target, and what autograd is told."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch


def filled_table(ids: list[int]) -> Any:
    table = torch.classes.store.HashTable("user", [2], torch.float32)
    table.insert(torch.tensor(ids, dtype=torch.int64), torch.ones(len(ids), 2))
    return table


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    tensors = {"w": torch.arange(6.0).reshape(2, 3)}
    weightstore.Saver(path=tmp_path / "c", hashtables={"user": filled_table([1, 2])}, tensors=tensors).save()
    return tmp_path / "c"


def test_a_table_and_a_tensor_of_one_name(checkpoint: Path, tmp_path: Path) -> None:
    table, tensor = filled_table([]), torch.zeros(2, 3)
    with pytest.raises(weightstore.InvalidArgument, match="'user': a table and a tensor both have this name"):
        weightstore.Loader(checkpoint, {"user": table}, {"user": tensor})
    for layout in ("plain", "recis"):
        with pytest.raises(weightstore.InvalidArgument, match="'user': a table and a tensor both have this name"):
            weightstore.Saver(
                path=tmp_path / "n", hashtables={"user": table}, tensors={"user": tensor}, layout=layout
            ).save()


def test_each_call_of_configure_changes_what_it_names(checkpoint: Path) -> None:
    w = torch.zeros(2, 3)
    loader = torch.classes.store.Loader(str(checkpoint), 1, {}, {"w": w, "gone": torch.zeros(1)})
    loader.configure('{"strict": false}')
    loader.configure('{"verify": true}')
    loader.load(loader.default_load_info())
    assert torch.equal(w, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.zeros(1, 1).expand(2, 3), "'w': is expanded.*clone"),
        (torch.zeros(2, 3).to_sparse(), "'w': has the layout Sparse"),
        (torch.zeros(2, 3, device="meta"), "'w': is on the meta device.*to_empty"),
    ],
    ids=["expanded", "sparse", "meta"],
)
def test_targets_without_memory_of_their_own(checkpoint: Path, target: Any, message: str) -> None:
    table = filled_table([])
    with pytest.raises(weightstore.CheckpointError, match=message):
        weightstore.Loader(checkpoint, {"user": table}, {"w": target})
    assert table.size() == 0


@pytest.mark.parametrize("row_major", [True, False])
def test_autograd_sees_the_change(checkpoint: Path, row_major: bool) -> None:
    out = torch.zeros(2, 3) if row_major else torch.zeros(3, 2).T
    weight = torch.ones(2, 3, requires_grad=True)
    y = (weight * out).sum()
    weightstore.Loader(checkpoint, tensors={"w": out}, strict=False).load()
    assert torch.equal(out, torch.arange(6.0).reshape(2, 3))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_a_failed_load_is_no_secret_to_autograd(checkpoint: Path) -> None:
    (file,) = checkpoint.glob("*.safetensors")
    file.write_bytes(file.read_bytes().replace(struct.pack("<f", 5), struct.pack("<f", 7)))
    out = torch.zeros(2, 3)
    version = out._version
    with pytest.raises(weightstore.FormatError, match="'w'"):
        weightstore.Loader(checkpoint, {"user": filled_table([])}, {"w": out}, verify="full").load()
    assert out[1, 2] == 7
    assert out._version > version


@pytest.mark.parametrize("row_major", [True, False])
def test_parameters_and_inference_tensors(checkpoint: Path, row_major: bool) -> None:
    with torch.inference_mode():
        inference = torch.zeros(2, 3) if row_major else torch.zeros(3, 2).T
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    for target in (inference, parameter):
        weightstore.Loader(checkpoint, tensors={"w": target}, strict=False).load()
        assert torch.equal(target.detach(), torch.arange(6.0).reshape(2, 3))


def test_a_column_as_a_tensor(tmp_path: Path) -> None:
    ids = torch.arange(200_000) * 7919
    table = torch.classes.store.HashTable("user", [8], torch.float32)
    table.insert(ids, torch.randn(len(ids), 8))
    weightstore.Saver(0, 1, 4, tmp_path, {"user": table}).save()
    rows = torch.zeros(len(ids), 8)
    weightstore.Loader(tmp_path, tensors={"user@embedding": rows}, strict=False).load()
    reader = weightstore.CheckpointReader(tmp_path)
    assert len(reader.tensor_slices("user@embedding")) > 1
    assert torch.equal(rows, reader.read_tensor("user@embedding"))


def test_verify_needs_checksums(checkpoint: Path, tmp_path: Path) -> None:
    out = torch.zeros(2, 3)
    weightstore.Loader(checkpoint, {"user": filled_table([])}, {"w": out}, verify="full").load()
    weightstore.Saver(path=tmp_path / "r", tensors={"w": out}, layout="recis").save()
    with pytest.raises(weightstore.CheckpointError, match=r"\.safetensors: tensor 'w\^ ': the file has no checksum"):
        weightstore.Loader(tmp_path / "r", tensors={"w": out}, verify="full").load()
    # The archive that torch writes has checksums of its own.
    torch.save({"w": torch.ones(2, 3)}, tmp_path / "w.pt")
    weightstore.Loader(tmp_path / "w.pt", tensors={"w": out}, verify="full").load()
    assert torch.equal(out, torch.ones(2, 3))
