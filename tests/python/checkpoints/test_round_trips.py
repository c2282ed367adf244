"""Whole rounds of tables and tensors, saved and loaded, where sharded savers are known to go wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import weightstore
from support.torch_classes import torch

safetensors_torch = pytest.importorskip("safetensors.torch")

LAYOUTS = ["plain", "recis"]


def make_table(dim: int = 4, dtype: Any = torch.float32, name: str = "user", **options: Any) -> Any:
    return torch.classes.store.HashTable(name, [dim], dtype, **options)


def save(path: Path, layout: str, hashtables: dict[str, Any], tensors: dict[str, Any] | None = None) -> None:
    weightstore.Saver(0, 1, 4, path, hashtables, tensors, layout=layout, overwrite=layout == "recis").save()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_ids_in_a_batch_then_saves(tmp_path: Path, layout: str) -> None:
    table = make_table(1)
    table.insert(torch.tensor([3, 4, 3, 3]), torch.tensor([[1.0], [2.0], [3.0], [4.0]]))
    table.lookup(torch.tensor([9, 9, 9]), True)
    for _ in range(2):
        save(tmp_path / "c", layout, {"user": table})
        loaded = make_table(1)
        weightstore.Loader(tmp_path / "c", {"user": loaded}).load()
        assert loaded.size() == 3
        assert loaded.lookup(torch.tensor([3, 4, 9]), False)[1].tolist() == [[4.0], [2.0], [0.0]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_cleared_table_is_filled_and_saved(tmp_path: Path, layout: str) -> None:
    table = make_table()
    table.insert(torch.arange(10_000), torch.zeros(10_000, 4))
    table.clear()
    table.insert(torch.arange(5), torch.ones(5, 4))
    save(tmp_path, layout, {"user": table})
    assert weightstore.CheckpointReader(tmp_path).tensor_shape("user@id") == [5]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_children_above_the_sign_bit_are_saved(tmp_path: Path, layout: str) -> None:
    children = [f"child{i}" for i in range(4094)]

    def keep_two(blocks: list[Any]) -> list[Any]:
        return [block for block in blocks if block.tensor_name().startswith(("child0@", "child4093@"))]

    table = make_table(1, children=children)
    high = (4093 << 52) - (1 << 64)  # as a signed number
    table.insert(torch.tensor([high | 5, 5]), torch.tensor([[1.0], [2.0]]))
    weightstore.Saver(0, 1, 4, tmp_path, {"user": table}, filter_func=keep_two, layout=layout).save()
    loaded = make_table(1, children=children)
    weightstore.Loader(tmp_path, {"user": loaded}, filter_func=lambda info: {"child4093": info["child4093"]}).load()
    assert loaded.ids().tolist() == [high | 5]
    assert loaded.lookup(torch.tensor([high | 5]), False)[1].tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("layout", "dtype"),
    [
        *((layout, dtype) for layout in LAYOUTS for dtype in (torch.bfloat16, torch.float16, torch.int32)),
        *(("plain", dtype) for dtype in (torch.complex64, torch.float8_e4m3fn)),  # RecIS cannot read these
    ],
)
def test_tables_of_other_types(tmp_path: Path, layout: str, dtype: Any) -> None:
    table, loaded = make_table(2, dtype), make_table(2, dtype)
    rows = torch.tensor([[1.0, 2.0], [3.0, -4.0]]).to(dtype)
    table.insert(torch.tensor([1, -2]), rows)
    save(tmp_path, layout, {"user": table})
    weightstore.Loader(tmp_path, {"user": loaded}).load()
    found = loaded.lookup(torch.tensor([1, -2]), False)[1]
    assert found.dtype is dtype
    assert torch.equal(found.view(torch.uint8), rows.view(torch.uint8))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scalars_of_every_table_are_kept(tmp_path: Path, layout: str) -> None:
    steps = {f"{name}.adam_step": torch.tensor([step]) for step, name in enumerate(["user", "item", "user.sub"])}
    save(tmp_path, layout, {"user": make_table(name="user"), "item": make_table(name="item")}, steps)
    loaded = {name: torch.full((1,), -1) for name in steps}
    weightstore.Loader(tmp_path, tensors=loaded, strict=False).load()
    assert loaded == steps


def test_one_large_table_keeps_all_files_busy(tmp_path: Path) -> None:
    table = make_table(16)
    ids = torch.arange(100_000) * 7919
    table.insert(ids, torch.zeros(len(ids), 16))
    save(tmp_path, "plain", {"user": table})
    sizes = [file.stat().st_size for file in tmp_path.glob("*.safetensors")]
    assert len(sizes) == 4
    assert max(sizes) - min(sizes) < 2 << 20  # a block


def test_files_of_recis_have_no_metadata_and_may_have_some(tmp_path: Path) -> None:
    save(tmp_path, "recis", {}, {"w": torch.ones(2)})
    (file,) = tmp_path.glob("*.safetensors")
    assert b"__metadata__" not in file.read_bytes()
    safetensors_torch.save_file({"w^ ": torch.zeros(2)}, file, metadata={"format": "pt"})
    assert b"__metadata__" in file.read_bytes()
    assert torch.equal(weightstore.CheckpointReader(tmp_path).read_tensor("w"), torch.zeros(2))


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex32])
def test_complex_numbers_that_no_file_has(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(weightstore.CheckpointError, match=r"'w'.*cannot hold elements of C\d+.*view_as_real"):
        save(tmp_path / "c", "plain", {}, {"w": torch.zeros(2, dtype=dtype)})
    assert not (tmp_path / "c").exists()
    torch.save({"w": torch.tensor([1 + 2j, 3 - 4j]).to(dtype)}, tmp_path / "w.pt")
    found = weightstore.CheckpointReader(tmp_path / "w.pt").read_tensor("w")
    assert found.dtype is dtype
    assert found.tolist() == [1 + 2j, 3 - 4j]


def test_what_is_saved_twice_is_the_same(tmp_path: Path) -> None:
    table = make_table()
    table.insert(torch.arange(1000) * 7919, torch.zeros(1000, 4))
    contents = []
    for name in "ab":
        saver = weightstore.Saver(0, 1, 2, tmp_path / name, {"user": table}, {"w": torch.ones(3)}, attempt="same")
        saver.save()
        contents.append({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]
    assert json.loads(contents[0]["model.safetensors.index.json"])["metadata"]["total_size"] == 1000 * 24 + 12
