"""Modules that run with their weights in a file give the same outputs, bit for bit, within their budget."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import weightstore
from support.offloaded_nets import BUDGET, INPUT, Net, empty, outputs
from weightstore import InvalidArgument, offload_module
from weightstore.torch import load_file, save_file

# ---- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["cyclic", "lru"])
def test_outputs_are_the_same(saved, policy):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET, policy=policy) as handle:
        for _ in range(4):
            assert torch.equal(outputs(net), expected)
            assert handle.pager.live_bytes <= handle.pager.budget_bytes <= BUDGET
        assert handle.blocks == ["embed", *(f"layers.{i}" for i in range(8)), "head"]
        assert handle.pager.stats()["peak_live_bytes"] <= BUDGET


def test_a_module_on_the_meta_device_needs_its_buffers(saved):
    path, expected = saved
    with torch.device("meta"):
        net = Net()
    with pytest.raises(InvalidArgument, match=r"'table'.*buffer.*empty_weights"):
        offload_module(net, path, budget=BUDGET)
    net.table = torch.arange(64).float() / 64
    with offload_module(net.eval(), path, budget=BUDGET):
        assert torch.equal(outputs(net), expected)


def test_real_parameters_are_replaced(saved):
    path, expected = saved
    net = Net().eval()
    with offload_module(net, path, budget=BUDGET):
        assert torch.equal(outputs(net), expected)
        assert all(repr(p).startswith("<offloaded") for p in net.parameters())


def test_inference_mode_and_autograd_that_is_not_used(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET):
        with torch.inference_mode():
            assert torch.equal(net(INPUT), expected)
        assert torch.equal(net(INPUT), expected)
        assert torch.equal(outputs(net), expected)


def test_several_threads(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget="2MB") as handle:
        wrong = []

        def work():
            for _ in range(10):
                if not torch.equal(outputs(net), expected):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert handle.pager.live_bytes <= 2_000_000


def test_a_block_inside_itself(tmp_path):
    class Again(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x, depth=3):
            return self.inner(x) if depth == 0 else self(self.inner(x), depth - 1)

    net = Again().eval()
    save_file(net.state_dict(), tmp_path / "m.safetensors")
    expected = outputs(net, torch.ones(4))
    with offload_module(net, tmp_path / "m.safetensors", budget=200, blocks=[""]) as handle:
        assert handle.blocks == [""]
        assert torch.equal(outputs(net, torch.ones(4)), expected)


def test_two_modules_on_one_pager(saved):
    path, expected = saved
    one, two = empty(), empty()
    with offload_module(one, path, budget="2MB") as first, offload_module(two, first.pager) as second:
        assert second.pager is first.pager
        for _ in range(3):
            assert torch.equal(outputs(one), expected)
            assert torch.equal(outputs(two), expected)
        second.close()
        assert torch.equal(outputs(one), expected)


@pytest.mark.parametrize(
    "module", [nn.MultiheadAttention(16, 2), nn.TransformerEncoderLayer(16, 2, 32), nn.LSTM(16, 16)]
)
def test_modules_that_use_the_weights_of_others(tmp_path, module):
    module = module.eval()
    save_file(module.state_dict(), tmp_path / "m.safetensors")
    x = torch.randn(3, 2, 16)
    call = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    with torch.no_grad():
        expected = module(*call)
    with offload_module(module, tmp_path / "m.safetensors", budget=None), torch.no_grad():
        found = module(*call)
    for a, b in zip(_tensors(found), _tensors(expected), strict=True):
        assert torch.equal(a, b)


def _tensors(value):
    return [value] if isinstance(value, torch.Tensor) else [t for part in value for t in _tensors(part)]


def test_experts_are_read_when_they_are_used(tmp_path):
    class Moe(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(8, 4)
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

        def forward(self, x):
            return self.experts[int(self.router(x).argmax())](x)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Moe() for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    net = Model().eval()
    save_file(net.state_dict(), tmp_path / "m.safetensors")
    expected = outputs(net, torch.ones(8))
    with offload_module(net, tmp_path / "m.safetensors", budget=None) as handle:
        assert torch.equal(outputs(net, torch.ones(8)), expected)
        assert handle.pager.resident_count == 3 * 4  # routers and one expert each


# ---- sources -----------------------------------------------------------------------------------------------------------


def test_formats_and_sets_of_shards(saved, tmp_path):
    path, expected = saved
    weightstore.convert(path, tmp_path / "net.bpk")
    save_file(load_file(path), tmp_path / "net.safetensors.index.json", max_shard_size="50KB")
    torch.save(load_file(path), tmp_path / "net.pt")
    for other in ("net.bpk", "net.safetensors.index.json", "net.pt"):
        net = empty()
        with offload_module(net, tmp_path / other, budget="1MB"):
            assert torch.equal(outputs(net), expected), other
    net = empty()
    with weightstore.open(path) as file, offload_module(net, file, budget="1MB"):
        assert torch.equal(outputs(net), expected)
    net = empty()
    with offload_module(net, path.read_bytes(), budget="1MB"):
        assert torch.equal(outputs(net), expected)


def test_a_store_renames_and_adapts(saved, tmp_path):
    path, expected = saved
    tensors = {f"model.{name}": tensor for name, tensor in load_file(path).items()}
    save_file(tensors, tmp_path / "renamed.safetensors")
    store = weightstore.SafetensorsStore.from_file(tmp_path / "renamed.safetensors").with_key_remapping(r"^model\.", "")
    net = empty()
    with offload_module(net, store, budget="1MB"):
        assert torch.equal(outputs(net), expected)

    plain = Net().eval()
    weightstore.load_from(plain, path)
    weightstore.BurnpackStore.from_file(tmp_path / "burn.bpk").with_to_adapter(
        weightstore.PyTorchToBurnAdapter
    ).collect_from(plain)
    store = weightstore.BurnpackStore.from_file(tmp_path / "burn.bpk").with_from_adapter(
        weightstore.BurnToPyTorchAdapter
    )
    net = empty()
    with offload_module(net, store, budget="1MB"):
        assert torch.equal(outputs(net), expected)


def test_types_are_cast_and_counted(tmp_path):
    net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    half = {name: tensor.half() for name, tensor in net.state_dict().items()}
    save_file(half, tmp_path / "half.safetensors")
    plain = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)).eval()
    weightstore.load_from(plain, tmp_path / "half.safetensors")
    with pytest.raises(InvalidArgument, match="weights that are cast"):
        offload_module(net, tmp_path / "half.safetensors", budget=20_000)
    with offload_module(net, tmp_path / "half.safetensors", budget=30_000) as handle:
        assert torch.equal(outputs(net, torch.ones(64)), outputs(plain, torch.ones(64)))
        assert "4 weights were cast" in handle.report()
        assert handle.pager.budget_bytes == 30_000 - 4 * 64 * 65
