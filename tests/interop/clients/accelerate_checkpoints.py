"""Checkpoints of accelerate: loaded into models, dispatched, offloaded to disk, and saved."""

from __future__ import annotations

import accelerate
import pytest
import torch
from tiny_models import INPUT, entry, llama, same

import weightstore
import weightstore.torch
from weightstore import SafetensorsStore, load_from, save_into

SHARD_SIZES = [None, "20KB"]
DTYPES = [torch.float32, torch.bfloat16]
OFFLOADED = {
    "model.embed_tokens": "cpu",
    "lm_head": "cpu",
    "model.layers.0": "disk",
    "model.layers.1": "cpu",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
}

pytestmark = [
    pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"]),
    pytest.mark.parametrize("dtype", DTYPES, ids=str),
]


@pytest.fixture
def model(tied, dtype):
    return llama(tied, dtype)


@pytest.fixture(params=SHARD_SIZES, ids=str)
def ours(request, tmp_path, model):
    """What a store wrote: the path that accelerate takes, as text."""
    store = SafetensorsStore.from_file(tmp_path / "model.safetensors").checksums(True)
    save_into(model, store if request.param is None else store.max_shard_size(request.param))
    model.config.save_pretrained(tmp_path)
    return str(tmp_path if request.param else tmp_path / "model.safetensors")


def empty(model):
    with accelerate.init_empty_weights():
        made = type(model)(model.config).to(model.dtype)
    made.tie_weights()
    return made.eval()


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
def test_load_checkpoint_in_model(ours, model, tied, dtype, strict):
    target = llama(tied, dtype, seed=9)
    # A file has one name for tied tensors, and accelerate's strict loading does not know that.
    accelerate.load_checkpoint_in_model(target, ours, strict=strict and not tied)
    target.tie_weights()
    same(target.state_dict(), model.state_dict())


def test_load_checkpoint_and_dispatch(ours, model):
    loaded = accelerate.load_checkpoint_and_dispatch(empty(model), ours, device_map={"": "cpu"})
    same(loaded.state_dict(), model.state_dict())


def test_offloaded_to_disk(ours, model, tmp_path):
    options = {"device_map": OFFLOADED, "offload_buffers": True}
    loaded = accelerate.load_checkpoint_and_dispatch(empty(model), ours, offload_folder=tmp_path / "off", **options)
    model.save_pretrained(tmp_path / "theirs")
    theirs = accelerate.load_checkpoint_and_dispatch(
        empty(model), str(tmp_path / "theirs" / "model.safetensors"), offload_folder=tmp_path / "off2", **options
    )
    assert torch.equal(loaded(INPUT).logits, theirs(INPUT).logits)


@pytest.mark.parametrize("device_map", [{"": "cpu"}, OFFLOADED], ids=["cpu", "disk"])
def test_from_pretrained_with_a_device_map(ours, model, tmp_path, device_map):
    model.save_pretrained(tmp_path / "theirs")
    found = []
    for directory in (tmp_path, tmp_path / "theirs"):
        loaded = type(model).from_pretrained(
            directory, device_map=device_map, offload_folder=directory / "off", dtype="auto"
        )
        found.append(loaded(INPUT).logits)
    assert torch.equal(*found)


@pytest.mark.parametrize("shard_size", ["10GB", "20KB"])
def test_save_model(tmp_path, model, tied, dtype, shard_size):
    accelerate.Accelerator(cpu=True).save_model(model, tmp_path, max_shard_size=shard_size)
    target = llama(tied, dtype, seed=9)
    result = load_from(target, SafetensorsStore.from_file(entry(tmp_path)))
    assert not result.missing
    assert not result.unused
    same(target.state_dict(), model.state_dict())
    again = llama(tied, dtype, seed=9)
    weightstore.torch.load_model(again, entry(tmp_path))
    same(again.state_dict(), model.state_dict())


def test_save_state_and_load_state(tmp_path, model, tied, dtype):
    accelerator = accelerate.Accelerator(cpu=True)
    prepared, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    prepared(input_ids=INPUT, labels=INPUT).loss.backward()
    optimizer.step()
    expected = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    accelerator.save_state(tmp_path)
    target = llama(tied, dtype, seed=9)
    load_from(target, SafetensorsStore.from_file(tmp_path / "model.safetensors"))
    same(target.state_dict(), expected)
    optimizer.step()
    accelerator.load_state(tmp_path)
    same(model.state_dict(), expected)
    with weightstore.open(tmp_path / "optimizer.bin") as file:
        assert len(file) > 0
