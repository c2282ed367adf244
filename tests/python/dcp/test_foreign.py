"""Checkpoints of torch's own writers, and Hugging Face's models."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, HuggingFaceStorageWriter
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata

import weightstore
import weightstore.torch
from weightstore.dcp import StorageReader, StorageWriter

pytestmark = pytest.mark.filterwarnings("ignore")


def state() -> dict[str, Any]:
    return {
        "model": {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2, dtype=torch.bfloat16)},
        "transposed": torch.arange(6).reshape(2, 3).t(),
        "half": torch.arange(8, dtype=torch.float16)[2:5],
        "mask": torch.tensor([True, False]),
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "complex": torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex128),
        "step": 5,
        "groups": [{"lr": 0.5, "betas": (0.5, 0.25)}],
    }


def blank(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if isinstance(value, dict):
        return {key: blank(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(blank(each) for each in value)
    return None


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return found.dtype == expected.dtype and torch.equal(found, expected)
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected)


def test_file_system_writer(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=FileSystemWriter(tmp_path, thread_count=2), no_dist=True)
    loaded = blank(state())
    dcp.load(loaded, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert same(loaded, state())


def test_file_system_writer_without_collectives(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=FileSystemWriter(tmp_path), no_dist=True, use_collectives=False)
    assert not (tmp_path / ".metadata").exists()
    loaded = blank(state())
    dcp.load(loaded, storage_reader=StorageReader(tmp_path), no_dist=True)
    assert same(loaded, state())


def test_metadata_says_what_torch_reads(tmp_path: Path) -> None:
    dcp.save(state(), storage_writer=FileSystemWriter(tmp_path), no_dist=True)
    ours, torchs = StorageReader(tmp_path).read_metadata(), FileSystemReader(tmp_path).read_metadata()
    assert ours.state_dict_metadata.keys() == torchs.state_dict_metadata.keys()
    for name, expected in torchs.state_dict_metadata.items():
        found = ours.state_dict_metadata[name]
        assert type(found) is type(expected)
        if hasattr(expected, "size"):
            assert (found.size, found.chunks) == (expected.size, expected.chunks)
            assert found.properties.dtype == expected.properties.dtype
    assert ours.planner_data == torchs.planner_data
    assert {index.fqn for index in ours.storage_data} == {index.fqn for index in torchs.storage_data}


def test_hugging_face_writer(tmp_path: Path) -> None:
    tensors = {"w": torch.arange(12.0).reshape(3, 4), "b": torch.ones(2, dtype=torch.bfloat16)}
    writer = HuggingFaceStorageWriter(str(tmp_path), fqn_to_index_mapping={"w": 1, "b": 2})
    dcp.save(dict(tensors), storage_writer=writer, no_dist=True)
    loaded = blank(tensors)
    dcp.load(loaded, storage_reader=StorageReader(tmp_path, verify="lazy"), no_dist=True)
    assert same(loaded, tensors)


def test_hugging_face_model(tmp_path: Path) -> None:
    tensors = {f"layer{i}": torch.randn(4, 4) for i in range(4)}
    weightstore.torch.save_file(tensors, tmp_path / "model.safetensors.index.json", max_shard_size=128)
    loaded = blank(tensors)
    dcp.load(loaded, storage_reader=StorageReader(), checkpoint_id=tmp_path, no_dist=True)
    assert same(loaded, tensors)


def test_another_type_is_converted(tmp_path: Path) -> None:
    dcp.save({"w": torch.arange(6.0)}, storage_writer=StorageWriter(tmp_path / "c"), no_dist=True)
    loaded = {"w": torch.zeros(6, dtype=torch.float64)}
    dcp.load(loaded, storage_reader=StorageReader(tmp_path / "c"), no_dist=True)
    assert loaded["w"].tolist() == [0, 1, 2, 3, 4, 5]


# ---- hostile files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    dcp.save(
        {"w": torch.arange(12.0).reshape(3, 4), "step": 3}, storage_writer=FileSystemWriter(tmp_path), no_dist=True
    )
    return tmp_path


def read(path: Path) -> dict[str, Any]:
    loaded = {"w": torch.zeros(3, 4), "step": 0}
    dcp.load(loaded, storage_reader=StorageReader(path), no_dist=True)
    return loaded


def edit(path: Path, change: Any) -> None:
    """Changes the Metadata object that torch pickled."""
    file = path / ".metadata"
    metadata: Metadata = pickle.loads(file.read_bytes())
    change(metadata)
    file.write_bytes(pickle.dumps(metadata))


class Call:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("where", ["root", "size", "planner", "path"])
def test_metadata_that_calls_is_refused(checkpoint: Path, tmp_path_factory: Any, where: str) -> None:
    made = tmp_path_factory.mktemp("canary") / "made"
    call = Call(os.system, f"touch {made}")

    def change(metadata: Any) -> None:
        if where == "size":
            metadata.state_dict_metadata["w"].size = call
        elif where == "planner":
            metadata.planner_data = call
        elif where == "path":
            next(iter(metadata.storage_data.values())).relative_path = call

    edit(checkpoint, change)
    if where == "root":
        (checkpoint / ".metadata").write_bytes(pickle.dumps(call))
    with pytest.raises(weightstore.StoreError, match="posix.system"):
        StorageReader(checkpoint).read_metadata()
    assert not made.exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: setattr(m.state_dict_metadata["w"], "size", (-1, 4)), "is not a number from 0 on"),
        (lambda m: setattr(m.state_dict_metadata["w"], "size", (2, 4)), "leaves the shape"),
        (lambda m: setattr(m.state_dict_metadata["w"], "size", "x"), "torch.Size"),
        (lambda m: setattr(m.state_dict_metadata["w"], "chunks", None), "chunks"),
        (lambda m: setattr(m.state_dict_metadata["w"].chunks[0], "sizes", (1 << 40, 1 << 40)), "leaves the shape"),
        (lambda m: setattr(m, "storage_data", {}), "no record"),
        (lambda m: setattr(m, "storage_data", None), "dict"),
        (lambda m: m.state_dict_metadata.update({"w": 3}), "neither a tensor"),
        (lambda m: setattr(next(iter(m.storage_data.values())), "relative_path", "../x"), "name of a file"),
        (lambda m: setattr(next(iter(m.storage_data.values())), "relative_path", "/etc/passwd"), "name of a file"),
        (lambda m: setattr(next(iter(m.storage_data.values())), "offset", -1), "number from 0 on"),
        (lambda m: setattr(next(iter(m.storage_data.values())), "transform_descriptors", ["zstd"]), "transformed"),
    ],
)
def test_damaged_metadata_is_refused(checkpoint: Path, change: Any, message: str) -> None:
    edit(checkpoint, change)
    with pytest.raises(weightstore.FormatError, match=message) as error:
        StorageReader(checkpoint).read_metadata()
    assert error.value.path is not None


@pytest.mark.parametrize("key", ["length", "offset"])
def test_a_record_that_leaves_its_file_is_refused(checkpoint: Path, key: str) -> None:
    def change(metadata: Any) -> None:
        for index, place in metadata.storage_data.items():
            if index.fqn == "w":
                setattr(place, key, 1 << 40)

    edit(checkpoint, change)
    with pytest.raises(CheckpointException, match="ends after the file"):
        read(checkpoint)


def test_every_truncation_of_metadata_is_refused(checkpoint: Path) -> None:
    whole = (checkpoint / ".metadata").read_bytes()
    for length in range(0, len(whole), 7):
        (checkpoint / ".metadata").write_bytes(whole[:length])
        with pytest.raises(weightstore.StoreError):
            StorageReader(checkpoint).read_metadata()


def test_every_flipped_byte_is_read_or_refused(checkpoint: Path) -> None:
    whole = (checkpoint / ".metadata").read_bytes()
    for position in range(0, len(whole), 3):
        (checkpoint / ".metadata").write_bytes(
            whole[:position] + bytes([whole[position] ^ 0x15]) + whole[position + 1 :]
        )
        with contextlib.suppress(weightstore.StoreError):
            StorageReader(checkpoint).read_metadata()


def test_shared_parts_do_not_unfold(checkpoint: Path) -> None:
    """A pickle of some kilobytes that would be a list of millions of chunks."""

    def change(metadata: Any) -> None:
        tensor = metadata.state_dict_metadata["w"]
        tensor.chunks = tensor.chunks * 5_000
        metadata.state_dict_metadata = {f"t{i}": tensor for i in range(5_000)}

    edit(checkpoint, change)
    with pytest.raises(weightstore.LimitError):
        StorageReader(checkpoint).read_metadata()


def test_a_record_of_code_is_not_run(checkpoint: Path, tmp_path_factory: Any) -> None:
    """The tensor's own record is a torch.save() file; one that calls is refused."""
    made = tmp_path_factory.mktemp("canary") / "made"
    buffer = io.BytesIO()
    torch.save(Call(os.system, f"touch {made}"), buffer)
    record = buffer.getvalue()
    (checkpoint / "__0_9.distcp").write_bytes(record)

    def change(metadata: Any) -> None:
        for index, place in metadata.storage_data.items():
            if index.fqn == "w":
                place.relative_path, place.offset, place.length = "__0_9.distcp", 0, len(record)

    edit(checkpoint, change)
    with pytest.raises(CheckpointException, match="posix.system"):
        read(checkpoint)
    assert not made.exists()


def test_an_object_of_code_needs_permission(checkpoint: Path, tmp_path_factory: Any) -> None:
    made = tmp_path_factory.mktemp("canary") / "made"
    dcp.save({"it": Call(os.system, f"touch {made}")}, storage_writer=StorageWriter(checkpoint / "c"), no_dist=True)
    with pytest.raises(CheckpointException, match="unsafe_objects=True"):
        dcp.load({"it": None}, storage_reader=StorageReader(checkpoint / "c"), no_dist=True)
    assert not made.exists()
    dcp.load({"it": None}, storage_reader=StorageReader(checkpoint / "c", unsafe_objects=True), no_dist=True)
    assert made.exists()
