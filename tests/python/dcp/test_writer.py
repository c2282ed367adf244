"""What StorageWriter writes, and what it leaves alone."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, _EmptyStateDictLoadPlanner

import weightstore
import weightstore.torch
from weightstore import _core
from weightstore._dcp import directory, sharing
from weightstore.dcp import StorageReader, StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

LAYOUTS = ["per-rank", "whole"]
DTYPES = """float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool complex64 complex128 complex32
    float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2""".split()


def save(state: dict[str, Any], path: Path, **options: Any) -> None:
    dcp.save(state, storage_writer=StorageWriter(path, **options), no_dist=True)


def load(state: dict[str, Any], path: Path, **options: Any) -> dict[str, Any]:
    dcp.load(state, storage_reader=StorageReader(path, **options), no_dist=True)
    return state


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir()}


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(tmp_path: Path, layout: str, dtype: str) -> None:
    kind = getattr(torch, dtype)
    count = 6 * kind.itemsize
    bits = (torch.arange(count) * 37 % (2 if dtype == "bool" else 251)).to(torch.uint8)
    tensor = bits.view(kind).reshape(2, 3)
    save({"t": tensor, "e": tensor[:0]}, tmp_path / "c", layout=layout)
    found = load(
        {"t": torch.zeros(6 * kind.itemsize, dtype=torch.uint8).view(kind).reshape(2, 3), "e": tensor[:0]},
        tmp_path / "c",
        verify="lazy",
    )
    assert raw(found["t"]) == raw(tensor)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_of_any_strides(tmp_path: Path, layout: str) -> None:
    base = torch.arange(120.0).reshape(4, 5, 6)
    state = {
        "transposed": base.permute(2, 0, 1),
        "sliced": base[::2, 1:4, ::3],
        "expanded": torch.arange(4.0)[:, None].expand(4, 3),
        "conjugate": torch.view_as_complex(base.reshape(4, 5, 3, 2)).conj(),
        "negative": torch.view_as_complex(base.reshape(4, 5, 3, 2)).conj().imag,
        "parameter": torch.nn.Parameter(base.clone()),
    }
    save(dict(state), tmp_path / "c", layout=layout)
    targets = {
        name: torch.zeros(tensor.shape[::-1], dtype=tensor.dtype).permute(*range(tensor.dim())[::-1])
        for name, tensor in state.items()
    }
    found = load(targets, tmp_path / "c")
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor.detach().resolve_conj().resolve_neg()), name


def test_whole_is_what_hugging_face_reads(tmp_path: Path) -> None:
    state = {f"layer.{i}.weight": torch.randn(8, 8) for i in range(5)}
    save(dict(state), tmp_path / "c", layout="whole", max_shard_size=600, files={"config.json": '{"model_type": "x"}'})
    index = json.loads((tmp_path / "c/model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 5 * 256
    assert set(index["weight_map"]) == set(state)
    assert (tmp_path / "c/config.json").read_text() == '{"model_type": "x"}'
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{i}-of-00003.safetensors" for i in ("00001", "00002", "00003")]
    assert names(tmp_path / "c") == {*files, "model.safetensors.index.json", "weightstore.index.json", "config.json"}
    for file in files:
        loaded = safetensors.torch.load_file(tmp_path / "c" / file)
        assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())
        with safetensors.safe_open(tmp_path / "c" / file, "pt") as opened:
            assert opened.metadata()["format"] == "pt"
    with weightstore.open(tmp_path / "c/model.safetensors.index.json") as opened:
        assert opened.verify() == 5


def test_one_file_has_no_index(tmp_path: Path) -> None:
    save({"w": torch.ones(3)}, tmp_path / "c", layout="whole")
    assert names(tmp_path / "c") == {"model.safetensors", "weightstore.index.json"}
    # The header of a save of one process, padded so that the data begins with a page.
    weightstore.torch.save_file({"w": torch.ones(3)}, tmp_path / "m.safetensors", {"format": "pt"}, checksums=True)
    ours, other = (tmp_path / "c/model.safetensors").read_bytes(), (tmp_path / "m.safetensors").read_bytes()
    assert (ours[:8], ours[8:4096].rstrip(), ours[4096:]) == (
        (4088).to_bytes(8, "little"),
        other[8:-12].rstrip(),
        other[-12:],
    )


def test_objects_are_in_no_safetensors_file(tmp_path: Path) -> None:
    save({"w": torch.ones(3), "step": 4}, tmp_path / "c")
    assert names(tmp_path / "c") == {
        "shard-00001-model-00001-of-00001.safetensors",
        "objects-00001.weightstore",
        "weightstore.index.json",
    }


def test_a_nested_state_is_found_by_its_index(tmp_path: Path) -> None:
    """As torch's dcp_to_torch does: without a state dict to load into."""
    state = {"model": {"w": torch.arange(4.0)}, "optim": {"groups": [{"lr": 0.5}, {"lr": 0.25}]}}
    save(dict(state), tmp_path / "c")
    found: dict[str, Any] = {}
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict

    _load_state_dict(
        found, storage_reader=StorageReader(tmp_path / "c"), planner=_EmptyStateDictLoadPlanner(), no_dist=True
    )
    assert found["optim"] == state["optim"]
    assert torch.equal(found["model"]["w"], state["model"]["w"])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damage_is_found(tmp_path: Path, layout: str) -> None:
    save({"w": torch.arange(100.0), "v": torch.ones(3)}, tmp_path / "c", layout=layout)
    (file,) = (tmp_path / "c").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    with pytest.raises(CheckpointException, match="checksum|crc32c"):
        load({"w": torch.zeros(100), "v": torch.zeros(3)}, tmp_path / "c", verify="lazy")
    load({"w": torch.zeros(100), "v": torch.zeros(3)}, tmp_path / "c")


def test_without_checksums(tmp_path: Path) -> None:
    save({"w": torch.ones(3)}, tmp_path / "c", checksums=False)
    with pytest.raises(CheckpointException, match="checksum"):
        load({"w": torch.zeros(3)}, tmp_path / "c", verify="full")


# ---- the directory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_a_save_replaces_a_checkpoint_and_nothing_else(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "c"
    save({"a": torch.ones(3), "b": torch.ones(300), "step": 1}, path, layout=first, max_shard_size=500)
    (path / "config.json").write_text("mine")
    (path / "adapter_model.safetensors").write_text("mine")
    (path / "logs").mkdir()
    (path / "logs/one").write_text("mine")
    (path / "link").symlink_to("config.json")
    node = (path / "config.json").stat().st_ino
    save({"a": torch.zeros(2), "step": 2}, path, layout=second)
    assert load({"a": torch.ones(2), "step": 0}, path)["step"] == 2
    others = {"config.json", "adapter_model.safetensors", "logs", "link"}
    assert others < names(path)
    assert (path / "config.json").stat().st_ino == node
    assert (path / "logs/one").read_text() == "mine"
    assert os.readlink(path / "link") == "config.json"
    expected = "model.safetensors" if second == "whole" else "shard-00001-model-00001-of-00001.safetensors"
    assert names(path) - others == {expected, "objects-00001.weightstore", "weightstore.index.json"}
    assert names(tmp_path) == {"c"}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_model_of_others_is_refused(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "c"
    path.mkdir()
    safetensors.torch.save_file({"w": torch.ones(2)}, path / "model.safetensors")
    with pytest.raises(CheckpointException, match="overwrite=True"):
        save({"w": torch.zeros(2)}, path, layout=layout)
    assert names(path) == {"model.safetensors"}
    assert names(tmp_path) == {"c"}
    save({"w": torch.zeros(2)}, path, layout=layout, overwrite=True)
    assert load({"w": torch.ones(2)}, path)["w"].tolist() == [0, 0]
    assert len(list(path.glob("*.safetensors"))) == 1


def test_file_systems_that_cannot_exchange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_core, "exchange", lambda first, second: False)
    path = tmp_path / "c"
    for value in (1.0, 2.0):
        save({"w": torch.full((2,), value)}, path)
        (path / "mine").write_text("mine")
    assert load({"w": torch.zeros(2)}, path)["w"].tolist() == [2, 2]
    assert names(tmp_path) == {"c"}
    # A process that dies between the two renames leaves the old checkpoint beside; the next save puts it back.
    os.rename(path, tmp_path / ".c~0123456789abcdef.weightstore-old")
    directory.begin(path, overwrite=False, durable=False).abandon()
    assert load({"w": torch.zeros(2)}, path)["w"].tolist() == [2, 2]
    assert names(tmp_path) == {"c"}


def test_what_dead_saves_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save({"w": torch.ones(2)}, path)
    dead = directory.begin(path, overwrite=False, durable=False)
    dead.write("config.json", b"never committed")
    assert dead._lease is not None
    os.close(dead._lease)  # as the end of its process does
    dead._lease = None
    directory._running.clear()
    other = tmp_path / ".d~0123456789abcdef.weightstore-staging"  # of another checkpoint
    other.mkdir()
    save({"w": torch.zeros(2)}, path)
    assert names(tmp_path) == {"c", other.name}
    assert "config.json" not in names(path)


def test_two_saves_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    first = directory.begin(path, overwrite=False, durable=False)
    directory._running.clear()  # as in another process
    with pytest.raises(weightstore.ConflictError, match="another save"):
        directory.begin(path, overwrite=False, durable=False)
    first.abandon()
    assert names(tmp_path) == set()


def test_a_failed_save_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c"
    save({"w": torch.ones(2)}, path)

    class Failing(DefaultSavePlanner):
        def resolve_data(self, write_item: Any) -> Any:
            raise RuntimeError("no data")

    with pytest.raises(CheckpointException, match="no data"):
        dcp.save({"w": torch.zeros(2)}, storage_writer=StorageWriter(path), planner=Failing(), no_dist=True)
    assert load({"w": torch.zeros(2)}, path)["w"].tolist() == [1, 1]
    save({"w": torch.full((2,), 3.0)}, path)
    assert load({"w": torch.zeros(2)}, path)["w"].tolist() == [3, 3]
    assert names(tmp_path) == {"c"}


def test_progress_cancels(tmp_path: Path) -> None:
    with pytest.raises(CheckpointException, match="cancelled"):
        save({"w": torch.ones(2_000_000)}, tmp_path / "c", progress=lambda done, total, name: False)
    assert not (tmp_path / "c").exists()


# ---- arguments -------------------------------------------------------------------------------------------------------


def test_arguments() -> None:
    with pytest.raises(weightstore.InvalidArgument, match="layout"):
        StorageWriter("c", layout="other")  # type: ignore[arg-type]
    with pytest.raises(weightstore.InvalidArgument, match="name of a file"):
        StorageWriter("c", files={"a/b": ""})
    with pytest.raises(weightstore.InvalidArgument, match="weightstore gives"):
        StorageWriter("c", files={"model.safetensors": ""})
    with pytest.raises(weightstore.InvalidArgument, match="URL"):
        StorageWriter("s3://bucket/c")
    assert not StorageWriter.validate_checkpoint_id("s3://bucket/c")
    assert StorageReader.validate_checkpoint_id("c")
    with pytest.raises(CheckpointException, match="no directory"):
        dcp.save({}, storage_writer=StorageWriter(), no_dist=True)


def test_a_missing_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(weightstore.StoreIOError, match="no checkpoint is here"):
        StorageReader(tmp_path).read_metadata()
    with pytest.raises(OSError, match="c"):
        StorageReader(tmp_path / "c").read_metadata()


@pytest.mark.parametrize(
    ("places", "reason"),
    [
        ([("a", 1, "ext4"), ("a", 1, "ext4")], None),
        ([("a", 1, "ext4"), ("a", 2, "ext4")], "different file systems"),
        ([("a", 1, "ext4"), ("b", 1, "ext4")], "several hosts, and ext4"),
        ([("a", 1, "lustre"), ("b", 1, "lustre")], None),
        ([("a", 1, "fuse.gcsfuse")], "middle of a file"),
    ],
)
def test_who_can_write_together(places: list[tuple[str, int, str]], reason: str | None) -> None:
    why = sharing.why_not_together([sharing.Place(*place) for place in places])
    assert why is None if reason is None else reason in (why or "")


def test_layout_whole_falls_back_with_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_kind", lambda path: "fuse.gcsfuse")
    with pytest.warns(UserWarning, match="each rank writes files of its own"):
        save({"w": torch.ones(2)}, tmp_path / "c", layout="whole")
    assert json.loads((tmp_path / "c/weightstore.index.json").read_text())["weightstore"]["layout"] == "per-rank"


def test_an_index_that_is_damaged_is_refused(tmp_path: Path) -> None:
    save({"w": torch.ones(2, 2), "step": 1}, tmp_path / "c")
    path = tmp_path / "c/weightstore.index.json"
    whole = json.loads(path.read_text())

    def refused(*keys: Any, value: Any) -> None:
        document = json.loads(json.dumps(whole))
        at = document
        for key in keys[:-1]:
            at = at[key]
        at[keys[-1]] = value
        path.write_text(json.dumps(document))
        with pytest.raises(weightstore.FormatError) as error:
            StorageReader(tmp_path / "c").read_metadata()
        assert error.value.path == str(path)

    refused("weightstore", "version", value=2)
    refused("weightstore", value=None)
    refused("files", value={"../x": 1})
    refused("files", value={"x": -1})
    refused("tensors", "w", "dtype", value="F33")
    refused("tensors", "w", "shape", value=[1, 2])
    refused("tensors", "w", "shape", value=[-2, 2])
    refused("tensors", "w", "shape", value=[True, 2])
    refused("tensors", "w", "chunks", 0, 0, value=7)
    refused("tensors", "w", "chunks", 0, 1, value=[1 << 70, 0])
    refused("tensors", "w", "chunks", value=3)
    refused("objects", "step", value=[0])
    refused("paths", "w", value=[0.5])
    for text in ("", "[", "[]", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(weightstore.FormatError):
            StorageReader(tmp_path / "c").read_metadata()


def test_an_index_of_another_file_is_refused(tmp_path: Path) -> None:
    """Index and files must say the same about a tensor."""
    save({"w": torch.ones(2, 2)}, tmp_path / "c")
    path = tmp_path / "c/weightstore.index.json"
    path.write_text(path.read_text().replace('"F32"', '"I32"'))
    with pytest.raises(CheckpointException, match="the index says I32"):
        load({"w": torch.zeros(2, 2)}, tmp_path / "c")


def test_no_warning_about_writable_memory(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        save({"w": torch.ones(2)}, tmp_path / "c")
        load({"w": torch.ones(2)}, tmp_path / "c")
