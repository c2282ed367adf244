"""The reader and writer of torch.distributed.checkpoint for Hugging Face's layout.

Directories that save_distributed writes without an index are read file by file only: `Loader` wants an index.
"""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from tiny_models import entry, same
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import weightstore
import weightstore.torch
from weightstore import Loader, SafetensorsStore, Saver, load_from


def state_dict() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    state = {f"layer.{i}.w": torch.randn(16, 8 + i) for i in range(6)}
    state |= {"bf": torch.randn(4, 4).bfloat16(), "half": torch.randn(3).half(), "double": torch.randn(2).double()}
    state |= {"long": torch.arange(5), "byte": torch.arange(7, dtype=torch.uint8), "bool": torch.tensor([True, False])}
    return state | {"scalar": torch.tensor(3.5), "f8": torch.randn(4, 4).to(torch.float8_e4m3fn)}


STATE = state_dict()


def zeros(state=STATE):
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def read_by_dcp(directory, state=STATE):
    found = zeros(state)
    dcp.load(found, storage_reader=HuggingFaceStorageReader(str(directory)))
    same(found, state)


def write_by_dcp(directory, state=STATE, **options):
    dcp.save(dict(state), storage_writer=HuggingFaceStorageWriter(str(directory), **options))


def read_by_us(directory, state=STATE):
    index = directory / "model.safetensors.index.json"
    path = index if index.exists() else next(directory.glob("*.safetensors"))
    same(weightstore.torch.load_file(path), state)
    found = zeros(state)
    load_from(found, SafetensorsStore.from_file(path))
    same(found, state)
    found = zeros(state)
    Loader(str(directory), tensors=found).load()
    same(found, state)


# ---- what torch wrote ------------------------------------------------------------------------------------------------

MAPPINGS = {"one file": {}, "three files": {"fqn_to_index_mapping": {name: i % 3 + 1 for i, name in enumerate(STATE)}}}


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("reader", [read_by_dcp, read_by_us])
def test_the_writer(tmp_path, mapping, reader):
    write_by_dcp(tmp_path, **MAPPINGS[mapping])
    reader(tmp_path)


def test_distributed_files_one_by_one(tmp_path):
    write_by_dcp(tmp_path, **MAPPINGS["three files"], save_distributed=True)
    found = {}
    for path in tmp_path.glob("*.safetensors"):
        found |= weightstore.torch.load_file(path)
        with weightstore.open(path) as file:
            offsets = json.loads(file.metadata["DCP_SHARDING_INFO"])
            assert offsets.keys() == set(file)
    same(found, STATE)
    read_by_dcp(tmp_path)


@pytest.mark.parametrize("reader", [read_by_dcp, read_by_us])
def test_consolidated(tmp_path, reader):
    # torch 2.13 consolidates only floating point numbers, and writes 0 for a tensor without dimensions.
    state = {name: tensor for name, tensor in STATE.items() if tensor.is_floating_point() and tensor.ndim}
    mapping = {name: i % 2 + 1 for i, name in enumerate(state)}
    write_by_dcp(tmp_path, state, fqn_to_index_mapping=mapping, save_distributed=True, enable_consolidation=True)
    reader(tmp_path, state)


def test_dcp_to_torch_save(tmp_path):
    dcp.save({"model": dict(STATE)}, checkpoint_id=tmp_path / "plain")
    dcp_to_torch_save(tmp_path / "plain", tmp_path / "plain.pt")
    with weightstore.open(tmp_path / "plain.pt") as file:
        found = file.load(framework="torch")
    same({name.removeprefix("model."): tensor for name, tensor in found.items()}, STATE)


# ---- what weightstore wrote ------------------------------------------------------------------------------------------


def save(directory, **options):
    options = {"shard_index": 0, "shard_num": 1} | options
    Saver(path=str(directory), tensors=dict(STATE), **options).save()


@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "checksums"])
def test_a_saver(tmp_path, parallel, checksums):
    save(tmp_path / "c", parallel=parallel, checksums=checksums)
    read_by_dcp(tmp_path / "c")


def test_a_saver_of_two_saves(tmp_path):
    save(tmp_path / "c", parallel=2, attempt="1")
    save(tmp_path / "c", parallel=2, attempt="2")
    read_by_dcp(tmp_path / "c")


@pytest.mark.parametrize("shard_size", [None, "2KB"])
@pytest.mark.parametrize("checksums", [False, True], ids=["plain", "checksums"])
def test_a_store(tmp_path, shard_size, checksums):
    store = SafetensorsStore.from_file(tmp_path / "model.safetensors").checksums(checksums)
    (store if shard_size is None else store.max_shard_size(shard_size)).collect_from(dict(STATE))
    read_by_dcp(tmp_path)


@pytest.mark.parametrize("shard_size", [None, "2KB"])
def test_save_file(tmp_path, shard_size):
    weightstore.torch.save_file(STATE, tmp_path / "model.safetensors", max_shard_size=shard_size)
    assert entry(tmp_path).exists()
    read_by_dcp(tmp_path)


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_reading_parts_of_tensors(tmp_path):
    """The reader asks get_slice() for the part that a process needs."""
    write_by_dcp(tmp_path)
    found = {"layer.3.w": torch.zeros(16, 11)}
    dcp.load(found, storage_reader=HuggingFaceStorageReader(str(tmp_path)))
    assert torch.equal(found["layer.3.w"], STATE["layer.3.w"])


# ---- what weightstore.dcp wrote --------------------------------------------------------------------------------------


def test_from_pretrained_opens_layout_whole(tmp_path):
    """What is on disk when save returns is a model of transformers."""
    transformers = pytest.importorskip("transformers")
    from weightstore.dcp import StorageReader, StorageWriter

    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=16)
    model = transformers.GPT2LMHeadModel(config)
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}  # tied
    writer = StorageWriter(
        tmp_path / "m", layout="whole", max_shard_size="20KB", files={"config.json": config.to_json_string()}
    )
    dcp.save(dict(state), storage_writer=writer, no_dist=True)
    assert (tmp_path / "m/model.safetensors.index.json").exists()
    opened = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m")
    same(opened.state_dict(), model.state_dict())
    # And back: what transformers saves is loaded.
    model.save_pretrained(tmp_path / "saved")
    found = zeros(state)
    dcp.load(found, storage_reader=StorageReader(tmp_path / "saved"), no_dist=True)
    same(found, state)
