"""Where values go: memory that is there, memory of the file, memory that several parameters share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weightstore
from support.stores import saved
from weightstore import (
    BurnpackStore,
    SafetensorsStore,
    apply,
    collect,
    errors,
)

torch = pytest.importorskip("torch")

nn = torch.nn

pytestmark = pytest.mark.usefixtures("both_ways")


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.register_buffer("count", torch.zeros(1))
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
@pytest.mark.parametrize("zero_copy", [True, False])
@pytest.mark.parametrize("meta", [True, False])
@pytest.mark.parametrize("half", [True, False])
def test_tied_parameters_stay_tied(tmp_path, kind, zero_copy, meta, half):
    source = Tied()
    path = tmp_path / "tied.bin"
    kind.from_file(path).collect_from(source)
    with torch.device("meta" if meta else "cpu"):
        target = Tied()
    target = target.half() if half else target
    trained = target.embedding.weight.requires_grad_(False)
    result = kind.from_file(path).zero_copy(zero_copy).apply_to(target)
    assert result.applied == ["count", "embedding.weight", "head.weight"]
    assert target.head.weight is target.embedding.weight
    assert isinstance(target.head.weight, nn.Parameter)
    assert not target.head.weight.requires_grad
    assert torch.equal(target.head.weight.float(), source.head.weight.half().float() if half else source.head.weight)
    assert (target.embedding.weight is trained) == (not meta)
    assert target.count.device.type == "cpu"


def test_one_name_is_enough_for_tied_parameters():
    source = Tied()
    values = torch.rand(5, 3)
    for name in ("embedding.weight", "head.weight"):
        result = saved({"count": source.count, name: values}).apply_to(source)
        assert (result.applied, result.missing) == (["count", "embedding.weight", "head.weight"], [])
        assert torch.equal(source.head.weight, values)


def test_of_two_tensors_for_tied_parameters_the_last_counts():
    target = Tied()
    one, other = torch.rand(5, 3), torch.rand(5, 3)
    result = saved({"count": torch.ones(1), "embedding.weight": one, "head.weight": other}).apply_to(target)
    assert result.unused == []
    reference = Tied()
    reference.load_state_dict({"count": torch.ones(1), "embedding.weight": one, "head.weight": other})
    assert torch.equal(target.head.weight, reference.head.weight)


def test_ties_are_noted_in_safetensors_and_followed_into_untied_modules():
    source = Tied()
    store = saved(source)
    assert store.keys() == ["count", "embedding.weight"]
    assert store.get_metadata()["head.weight"] == "embedding.weight"
    untied = Tied()
    untied.head.weight = nn.Parameter(torch.zeros(5, 3))
    result = store.apply_to(untied)
    assert (result.missing, result.unused) == ([], [])
    assert torch.equal(untied.head.weight, source.head.weight)
    assert untied.head.weight is not untied.embedding.weight
    renamed = saved(source).with_key_remapping("^", "model.")
    assert renamed.apply_to(nn.ModuleDict({"model": untied})).missing == []
    assert saved(source, BurnpackStore).keys() == ["count", "embedding.weight", "head.weight"]


def test_parameters_that_share_memory_but_are_two_objects():
    module = nn.Module()
    module.a = nn.Parameter(torch.zeros(3))
    module.b = nn.Parameter(module.a.data)
    for zero_copy in (False, True):
        saved({"a": torch.full((3,), 2.0 + zero_copy)}).zero_copy(zero_copy).apply_to(module)
        assert module.b.tolist() == [2 + zero_copy] * 3
        assert module.a.data_ptr() == module.b.data_ptr()


def test_values_are_copied_into_the_memory_that_is_there():
    source, target = nn.Linear(3, 4), nn.Linear(3, 4)
    addresses = [parameter.data_ptr() for parameter in target.parameters()]
    optimizer = torch.optim.SGD(target.parameters(), lr=1)
    saved(source).apply_to(target)
    assert [parameter.data_ptr() for parameter in target.parameters()] == addresses
    assert optimizer.param_groups[0]["params"][0] is target.weight
    assert torch.equal(target.weight, source.weight)


def test_strided_targets_are_filled_by_value():
    base = torch.zeros(4, 6)
    target = {"t": base.t()[::2], "n": np.zeros((4, 6), order="F"), "big": np.zeros(3, ">f4")}
    source = {"t": torch.rand(3, 4), "n": np.random.rand(4, 6), "big": np.arange(3, dtype="f4")}
    saved(source).apply_to(target)
    assert torch.equal(target["t"], source["t"])
    assert torch.equal(base.t()[::2], source["t"])
    assert np.array_equal(target["n"], source["n"])
    assert target["big"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
def test_zero_copy_adopts_the_mapped_file(tmp_path, kind):
    source, target = nn.Linear(64, 64), nn.Linear(64, 64)
    path = tmp_path / "m.x"
    kind.from_file(path).collect_from(source)
    parameter = target.weight
    kind.from_file(path).zero_copy(True).apply_to(target)
    assert target.weight is parameter
    assert torch.equal(target.weight, source.weight)
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("m.x")]
    ranges = [tuple(int(end, 16) for end in line[0].split("-")) for line in maps]
    assert any(begin <= target.weight.data_ptr() < end for begin, end in ranges)
    optimizer = torch.optim.SGD(target.parameters(), lr=0.1)
    target(torch.ones(1, 64)).sum().backward()
    optimizer.step()
    assert not torch.equal(target.weight, source.weight)
    assert torch.equal(kind.from_file(path).get_snapshot("weight").torch(), source.weight)


def test_zero_copy_into_arrays(tmp_path):
    path = tmp_path / "m.safetensors"
    SafetensorsStore.from_file(path).collect_from({"a": np.arange(4.0)})
    target = {"a": np.zeros(4)}
    SafetensorsStore.from_file(path).zero_copy(True).apply_to(target)
    assert not target["a"].flags.writeable
    assert target["a"].tolist() == [0, 1, 2, 3]
    data = path.read_bytes()
    SafetensorsStore.from_static(data).apply_to(target)
    assert np.shares_memory(target["a"], np.frombuffer(data, "u1"))


def test_modules_on_the_meta_device(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
            self.frozen = nn.Parameter(torch.rand(2), requires_grad=False)

    source = Net()
    for kind in (BurnpackStore, SafetensorsStore):
        path = tmp_path / kind.__name__
        kind.from_file(path).collect_from(source)
        with torch.device("meta"):
            target = Net()
        kind.from_file(path).apply_to(target)
        assert target.block[0].weight.requires_grad
        assert not target.frozen.requires_grad
        for name, tensor in source.state_dict().items():
            assert torch.equal(target.state_dict()[name], tensor), name
        target.block(torch.rand(3, 4)).sum().backward()
        assert target.block[0].weight.grad.shape == (4, 4)
    with torch.device("meta"):
        target = Net()
    result = saved({"frozen": torch.ones(2)}).allow_partial(True).apply_to(target)
    assert result.applied == ["frozen"]
    assert target.block[0].weight.device.type == "meta"


def test_lazy_modules_take_the_shape_of_the_file():
    source = nn.Linear(7, 3)
    target = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(2))
    result = saved({"0.weight": source.weight, "0.bias": source.bias}).allow_partial(True).apply_to(target)
    assert result.missing == ["1.bias", "1.weight"]
    assert torch.equal(target[0].weight, source.weight)
    assert nn.parameter.is_lazy(target[1].weight)
    values = torch.rand(2, 7)
    assert torch.equal(target[0](values), source(values))
    assert target(values).shape == (2, 2)


def test_arrays_that_cannot_be_written_are_replaced():
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    target = {"a": frozen, "s": np.float32(0), "l": [frozen]}
    saved({"a": np.ones(2), "s": np.float32(3), "l.0": np.ones(2)}).apply_to(target)
    assert target["a"].tolist() == [1, 1]
    assert float(target["s"]) == 3
    assert target["l"][0].tolist() == [1, 1]
    assert frozen.tolist() == [0, 0]


def test_lazy_things_are_no_target():
    result = apply({"a": weightstore.DeferredTensor("F32", (1,), bytes)}, collect({"a": np.ones(1)}))
    assert isinstance(result.errors[0], weightstore.LoadError)
    assert "DeferredTensor" in str(result.errors[0])


def test_targets_that_overlap_are_filled_one_after_the_other():
    room = np.zeros(6, "u1")
    tensor = torch.zeros(6)
    target = {"a": room[:4], "b": room[2:], "c": tensor[:4], "d": tensor[3:]}
    source = {"a": np.ones(4, "u1"), "b": np.full(4, 2, "u1"), "c": torch.ones(4), "d": torch.full((3,), 2.0)}
    assert saved(source).apply_to(target).applied == list(target)
    assert room.tolist() == [1, 1, 2, 2, 2, 2]
    assert tensor.tolist() == [1, 1, 1, 2, 2, 2]
    target = {"a": room[2:], "b": room[:4]}
    assert saved({"a": np.ones(4, "u1"), "b": np.full(4, 2, "u1")}).apply_to(target).applied == list(target)
    assert room.tolist() == [2, 2, 2, 2, 1, 1]


def test_targets_that_cannot_take_a_tensor_are_found_first():
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    target = {"a": np.zeros(1), "t": (np.zeros(1), frozen), "s": torch.eye(1).to_sparse()}
    source = {"a": np.ones(1), "t.0": np.ones(1), "t.1": np.ones(1), "s": np.ones((1, 1))}
    with pytest.raises(errors.ValidationError, match="read-only") as caught:
        saved(source).apply_to(target)
    assert [error.path for error in caught.value.result.errors] == ["t.1", "s"]
    assert target["a"] == [0]
    for zero_copy in (False, True):
        assert (
            saved({"t.0": np.full(1, 2.0)})
            .zero_copy(zero_copy)
            .allow_partial(True)
            .apply_to({"t": target["t"]})
            .applied
        )
        assert target["t"][0] == [2]
        target["t"][0][:] = 0


def test_models_never_share_memory():
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    apply(other, collect(one), zero_copy=True)
    assert torch.equal(one.weight, other.weight)
    assert one.weight.data_ptr() != other.weight.data_ptr()
