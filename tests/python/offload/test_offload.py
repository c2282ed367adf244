"""Modules that run with their weights in a file give the same outputs, bit for bit, within their budget."""

from __future__ import annotations

import copy
import gc
import os
import threading

import pytest
import torch
from torch import nn

import weightstore
from weightstore import InvalidArgument, OffloadEof, TensorNotFound, empty_weights, offload_module
from weightstore.torch import load_file, save_file, save_model


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    """With tied weights, a buffer that files have, and one that they do not have."""

    def __init__(self, layers=8, width=64):
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((width,), 2.0))
        self.register_buffer("table", torch.arange(width).float() / width, persistent=False)

    def forward(self, x):
        x = self.embed(x) * self.scale + self.table
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


torch.set_num_threads(1)
INPUT = torch.arange(10).reshape(2, 5)
LAYER_BYTES = 4 * (64 * 128 * 2 + 128 + 64 + 2 * 64)
BUDGET = 6 * LAYER_BYTES


@pytest.fixture
def saved(tmp_path):
    torch.manual_seed(1)
    net = Net().eval()
    path = tmp_path / "net.safetensors"
    save_model(net, path)
    with torch.no_grad():
        return path, net(INPUT)


def empty(**options):
    with empty_weights():
        return Net(**options).eval()


def outputs(module, value=INPUT):
    with torch.no_grad():
        return module(value)


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


# ---- what is refused ---------------------------------------------------------------------------------------------------


def test_missing_and_wrong_tensors_leave_the_module_alone(saved, tmp_path):
    path, _ = saved
    tensors = load_file(path)
    tensors.pop("layers.3.up.weight")
    save_file(tensors, tmp_path / "less.safetensors")
    net = empty()
    with pytest.raises(TensorNotFound, match=r"layers\.3\.up\.weight"):
        offload_module(net, tmp_path / "less.safetensors")
    with pytest.raises(weightstore.ValidationError):
        offload_module(empty(width=32), path)
    assert "forward" not in vars(net.layers[0])
    with pytest.raises(TypeError, match=r"torch\.nn\.Module"):
        offload_module({}, path)
    with pytest.raises(TypeError, match="cannot offload to an int"):
        offload_module(net, 7)


def test_a_budget_that_is_too_small(saved):
    path, _ = saved
    with pytest.raises(InvalidArgument, match=r"'layers\.0' needs .* give at least (\d+) bytes") as error:
        offload_module(empty(), path, budget="10KB")
    least = int(str(error.value).split("at least ")[1].split()[0])
    net = empty()
    with offload_module(net, path, budget=least):
        assert torch.equal(outputs(net), saved[1])


def test_training_is_refused(saved):
    path, _ = saved
    net = empty().train()
    with offload_module(net, path, budget=BUDGET):
        with pytest.raises(InvalidArgument, match="cannot be trained"):
            net(INPUT)
        outputs(net)
        net.eval()
        with pytest.raises(InvalidArgument, match="requires gradients"):
            net.layers[0](torch.zeros(64, requires_grad=True))


@pytest.mark.parametrize(
    "use",
    [
        lambda net: net.state_dict(),
        lambda net: net.to(torch.float16),
        lambda net: copy.deepcopy(net),
        lambda net: torch.save(net, os.devnull),
        lambda net: net.load_state_dict({}, strict=False),
        lambda net: net.head.weight + 1,
        lambda net: torch.nn.functional.linear(torch.zeros(64), net.embed.weight),
    ],
)
def test_weights_cannot_be_used_outside_of_their_block(saved, use):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET):
        with pytest.raises(InvalidArgument, match="offloaded"):
            use(net)
        assert net.head.weight.shape == (50, 64)
        assert net.head.weight.dtype == torch.float32
        assert net.head.weight.device.type == "cpu"
        assert sum(p.numel() for p in net.parameters()) > 0
        assert "offloaded weight" in repr(net.head.weight)
        assert torch.equal(outputs(net), expected)


def test_writes_are_found_and_undone(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET, pinned=["layers.2.*"]):

        def write(module, args):
            module.up.weight.mul_(2)

        outputs(net)
        layer = net.layers[2]
        forward = layer.norm.forward
        layer.norm.forward = lambda x: (write(layer, x), forward(x))[1]
        for mode in (torch.no_grad, torch.inference_mode):
            with pytest.raises(InvalidArgument, match=r"wrote to offloaded weights: 'layers\.2\.up\.weight'"), mode():
                net(INPUT)
        layer.norm.forward = forward
        assert torch.equal(outputs(net), expected)


def test_a_module_is_offloaded_once(saved):
    net = empty()
    with offload_module(net, saved[0], budget=BUDGET), pytest.raises(InvalidArgument, match="already"):
        offload_module(net, saved[0], budget=BUDGET)


# ---- errors while it runs ----------------------------------------------------------------------------------------------


def test_a_block_that_raises_gives_its_weights_back(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET) as handle:
        outputs(net)
        with pytest.raises((RuntimeError, IndexError)):
            outputs(net, torch.full((1, 1), 99))  # no such row of the embedding
        with pytest.raises(RuntimeError):
            outputs(net.layers[1], torch.zeros(3))
        assert torch.equal(outputs(net), expected)
        gc.collect()  # the tracebacks of the errors hold weights
        handle.pager.clear()
        assert handle.pager.live_bytes == 0


def test_a_read_that_fails_in_the_middle_of_a_forward(saved):
    path, expected = saved
    net = empty()
    data = path.read_bytes()
    with offload_module(net, path, budget=3 * LAYER_BYTES) as handle:
        for _ in range(2):
            assert torch.equal(outputs(net), expected)
        os.truncate(path, len(data) // 2)
        with pytest.raises(OffloadEof, match=r"tensor 'layers\.\d\.\w+\.\w+'"):
            outputs(net)
        path.write_bytes(data)
        assert torch.equal(outputs(net), expected)
        assert handle.pager.stats()["load_errors"] > 0


# ---- pins, report, the end ---------------------------------------------------------------------------------------------


def test_pins_by_role(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget="1MB", pinned=["embeddings", "last:2", "layers.0.norm.*"]) as handle:
        pinned = {name for name in handle.pager.names() if handle.pager.is_pinned(name)}
        assert {name.split(".")[0] for name in pinned} == {"embed", "layers"} or "head.weight" in pinned
        assert {name.split(".")[1] for name in pinned if name.startswith("layers")} == {"0", "6", "7"}
        assert torch.equal(outputs(net), expected)
    with pytest.raises(TensorNotFound):
        offload_module(empty(), path, budget="1MB", pinned=["nothing.weight"])
    with pytest.raises(TypeError, match="list"):
        offload_module(empty(), path, budget="1MB", pinned="head")


def test_named_blocks(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget="1MB", blocks=["layers.*.up", net.layers[0].down]) as handle:
        assert "layers.3.up" in handle.blocks
        assert "layers.0.down" in handle.blocks
        assert torch.equal(outputs(net), expected)
    with pytest.raises(TensorNotFound, match="no part 'decoder'"):
        offload_module(empty(), path, blocks=["decoder"])
    with pytest.raises(TypeError):
        offload_module(empty(), path, blocks=[3])


def test_closing_gives_the_module_back(saved):
    path, expected = saved
    net = empty()
    before = dict(net.named_parameters())
    handle = offload_module(net, path, budget=BUDGET)
    outputs(net)
    handle.close()
    handle.close()
    assert dict(net.named_parameters()) == before
    assert not any("forward" in vars(module) for module in net.modules())
    handle = offload_module(net, path, budget=BUDGET)
    handle.close(load=True)
    assert net.head.weight is net.embed.weight
    assert net.head.weight.requires_grad
    assert torch.equal(outputs(net), expected)
    net.state_dict()


def test_the_report_says_what_limits(saved):
    path, _ = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET) as handle:
        assert "nothing has run" in handle.report()
        for _ in range(3):
            outputs(net)
        report = handle.report()
        assert "3 passes" in report
        assert "limits it" in report
        assert "\n" not in report
        assert "10 blocks" in repr(handle)
    net = empty()
    with offload_module(net, path, budget=None) as handle:
        outputs(net)
        assert "Everything fits" in handle.report()


def test_weights_are_not_copied(saved):
    path, _ = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET) as handle:
        seen = {}
        forward = net.layers[0].up.forward

        def look(x):
            seen["address"] = net.layers[0].up.weight.data_ptr()
            return forward(x)

        net.layers[0].up.forward = look
        outputs(net)
        net.layers[0].up.forward = forward
        with handle.pager.acquire("layers.0.up.weight") as held:
            seen["pager"] = held.torch().data_ptr()
        assert seen["address"] == seen["pager"] or handle.pager.stats("layers.0.up.weight")["loads"] > 1


def test_empty_weights_keeps_ties_and_buffers():
    with empty_weights():
        net = Net()
    assert all(p.device.type == "meta" for p in net.parameters())
    assert all(b.device.type == "cpu" for b in net.buffers())
    assert net.head.weight is net.embed.weight
    assert next(nn.Linear(2, 2).parameters()).device.type == "cpu"
