"""What offloaded modules refuse, errors while they run, pins, and the end."""

from __future__ import annotations

import copy
import gc
import os

import pytest
import torch
from torch import nn

import weightstore
from support.offloaded_nets import BUDGET, INPUT, LAYER_BYTES, Net, empty, outputs
from weightstore import InvalidArgument, OffloadEof, TensorNotFound, empty_weights, offload_module
from weightstore.torch import load_file, save_file

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


def test_experts_that_a_file_has_one_by_one(tmp_path):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate_up_proj = nn.Parameter(torch.ones(2, 4, 3))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = Experts()

    model = nn.ModuleDict({"mlp": Model()})
    split = {f"mlp.experts.{i}.{name}.weight": torch.ones(2, 3) for i in range(2) for name in ("w1", "w3")}
    save_file(split, tmp_path / "split.safetensors")
    with pytest.raises(TensorNotFound, match=r"tensors of each expert by themselves.*save_into\(model, path\)"):
        offload_module(model, tmp_path / "split.safetensors", budget="1MB")


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


# ---- a pass that does not end as it should -------------------------------------------------------------------------------


def test_an_early_exit_from_a_pass(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET) as handle:

        def stop(*_):
            raise KeyboardInterrupt  # not an Exception

        for last in (5, 0, 7, 3):
            hook = net.layers[last].up.register_forward_hook(stop)
            with pytest.raises(KeyboardInterrupt):
                outputs(net)
            hook.remove()
            assert torch.equal(outputs(net), expected)
        assert handle.pager.stats()["peak_live_bytes"] <= BUDGET
        handle.pager.clear()
        assert handle.pager.resident_count == 0  # no block has kept a weight


def test_a_module_that_runs_is_not_closed(saved):
    path, expected = saved
    net = empty()
    handle = offload_module(net, path, budget=BUDGET)

    def close(*_):
        with pytest.raises(InvalidArgument, match=r"'layers\.2' has not returned"):
            handle.close()

    hook = net.layers[2].up.register_forward_hook(close)
    assert torch.equal(outputs(net), expected)
    hook.remove()
    handle.close()


def test_a_forked_process_runs_the_module(saved):
    path, expected = saved
    net = empty()
    with offload_module(net, path, budget=BUDGET):
        outputs(net)
        child = os.fork()
        if child == 0:
            try:
                same = all(torch.equal(outputs(net), expected) for _ in range(3))
                os._exit(0 if same else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.equal(outputs(net), expected)
