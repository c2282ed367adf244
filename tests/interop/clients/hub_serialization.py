"""The functions of huggingface_hub that save and load state dicts, and its mixin for models."""

from __future__ import annotations

import huggingface_hub
import pytest
import safetensors
import torch
from huggingface_hub import (
    PyTorchModelHubMixin,
    load_state_dict_from_file,
    load_torch_model,
    save_torch_model,
    save_torch_state_dict,
)
from tiny_models import entry, same

import weightstore.torch
from weightstore import SafetensorsStore, load_from, save_into


class Net(torch.nn.Module, PyTorchModelHubMixin):
    def __init__(self, size: int = 5, seed: int = 0, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.second = torch.nn.Linear(size, 3), torch.nn.Linear(size, 3)
        if tied:
            self.second.weight = self.first.weight


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def tied(request):
    return request.param


@pytest.fixture
def net(tied):
    return Net(tied=tied)


SHARD_SIZES = pytest.mark.parametrize("shard_size", [None, 40], ids=["whole", "sharded"])


def strictly(tied, shard_size) -> bool:
    """Whether the hub can load its own files with strict=True: it misses names that are tied, and older releases take each
    shard for the whole model."""
    return not tied and (shard_size is None or not huggingface_hub.__version__.startswith("0."))


def store_of(directory, shard_size):
    store = SafetensorsStore.from_file(directory / "model.safetensors").checksums(True)
    return store if shard_size is None else store.max_shard_size(shard_size)


@SHARD_SIZES
def test_load_state_dict_from_file(tmp_path, net, shard_size):
    """Passes device=None on."""
    save_into(net, store_of(tmp_path, shard_size))
    state, found = net.state_dict(), {}
    for path in tmp_path.glob("*.safetensors"):
        found |= load_state_dict_from_file(path)
        found |= load_state_dict_from_file(path, map_location="cpu")
    same(found, {name: state[name] for name in found})
    assert len(found) >= 3


@SHARD_SIZES
def test_load_torch_model_of_ours(tmp_path, net, tied, shard_size):
    save_into(net, store_of(tmp_path, shard_size))
    target = Net(seed=9, tied=tied)
    load_torch_model(target, tmp_path, strict=strictly(tied, shard_size))
    same(target.state_dict(), net.state_dict())


@SHARD_SIZES
def test_save_torch_model(tmp_path, net, tied, shard_size):
    save_torch_model(net, tmp_path, **({} if shard_size is None else {"max_shard_size": shard_size}))
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size is not None)
    target = Net(seed=9, tied=tied)
    result = load_from(target, SafetensorsStore.from_file(entry(tmp_path)))
    assert not result.missing
    same(target.state_dict(), net.state_dict())
    again = Net(seed=9, tied=tied)
    load_torch_model(again, tmp_path, strict=strictly(tied, shard_size))
    same(again.state_dict(), net.state_dict())


@SHARD_SIZES
def test_save_torch_state_dict(tmp_path, shard_size):
    state = {"a": torch.randn(4, 5), "b": torch.randn(6).bfloat16(), "c": torch.arange(3), "d": torch.tensor(2.0)}
    options = {} if shard_size is None else {"max_shard_size": shard_size}
    save_torch_state_dict(state, tmp_path, metadata={"made by": "a test"}, **options)
    same(weightstore.torch.load_file(entry(tmp_path)), state)


@SHARD_SIZES
def test_views_and_shared_tensors(tmp_path, shard_size):
    """The hub asks storage_ptr and storage_size which tensors share memory."""
    memory = torch.arange(20.0)
    state = {"whole": memory, "same": memory, "turned": torch.arange(6.0).reshape(2, 3).t()}
    options = {} if shard_size is None else {"max_shard_size": shard_size}
    save_torch_state_dict(state, tmp_path, **options)
    found = weightstore.torch.load_file(entry(tmp_path))
    assert found.keys() in ({"whole", "turned"}, {"same", "turned"})
    assert torch.equal(found["turned"], state["turned"])


def test_the_mixin(tmp_path, net, tied):
    net.save_pretrained(tmp_path)
    same(Net.from_pretrained(tmp_path, tied=tied).state_dict(), net.state_dict())
    target = Net(seed=9, tied=tied)
    load_from(target, SafetensorsStore.from_file(tmp_path / "model.safetensors"))
    same(target.state_dict(), net.state_dict())


def test_the_mixin_reads_ours(tmp_path, net, tied):
    net.save_pretrained(tmp_path)
    save_into(net, store_of(tmp_path, None).overwrite(True))
    same(Net.from_pretrained(tmp_path, tied=tied).state_dict(), net.state_dict())


def test_a_broken_file(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 7)
    with pytest.raises((safetensors.SafetensorError, ValueError), match=r"model\.safetensors|header too small"):
        load_state_dict_from_file(tmp_path / "model.safetensors")
