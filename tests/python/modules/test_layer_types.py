"""Adapters that go by the types of layers, and modules that have none: dicts of arrays, snapshots of files."""

from __future__ import annotations

import types

import numpy as np
import pytest

from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    ModuleAdapter,
    PathFilter,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    TensorSnapshot,
    apply,
    collect,
    errors,
)

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)) for _ in range(2)])
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.rand(2))


TYPES = {
    r"blocks\.\d+\.0": "Linear",
    r"blocks\.\d+\.1": "LayerNorm",
    "norm": "BatchNorm1d",
    "embed": "Embedding",
    "": None,  # scale belongs to no layer
}


@pytest.fixture
def checkpoint(tmp_path):
    model = Net()
    torch.save(model.state_dict(), tmp_path / "net.pth")
    return model, PytorchStore.from_file(tmp_path / "net.pth")


@pytest.mark.parametrize("adapter", [PyTorchToBurnAdapter(), PyTorchToBurnAdapter().chain(HalfPrecisionAdapter())])
@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
def test_from_torch_to_burn_without_a_model(checkpoint, kind, adapter):
    model, file = checkpoint
    converted = kind.from_bytes(None).with_to_adapter(adapter, types=TYPES)
    converted.collect_from(file.get_all_snapshots())
    with_model = kind.from_bytes(None).with_to_adapter(adapter)
    # A file shows its tensors sorted by name, a model in the order of declaration.
    with_model.collect_from(sorted(collect(model), key=lambda snapshot: snapshot.full_path))
    assert converted.get_bytes() == with_model.get_bytes()
    assert "blocks.1.1.gamma" in converted.keys()  # noqa: SIM118
    assert "norm.num_batches_tracked" not in converted.keys()  # noqa: SIM118
    assert converted.get_snapshot("blocks.0.0.weight").shape == (3, 4)


@pytest.mark.parametrize("adapter", [PyTorchToBurnAdapter, BurnToPyTorchAdapter, HalfPrecisionAdapter])
def test_without_types_nothing_is_written(checkpoint, tmp_path, adapter):
    _, file = checkpoint
    store = BurnpackStore.from_file(tmp_path / "out.bpk").with_to_adapter(adapter)
    with pytest.raises(errors.InvalidArgument) as caught:
        store.collect_from(file.get_all_snapshots())
    text = str(caught.value)
    assert f"{adapter.__name__}()" in text
    assert "'blocks.0.0' (bias, weight)" in text
    assert "types={" in text
    assert isinstance(caught.value, errors.BurnpackError)
    assert not (tmp_path / "out.bpk").exists()


class Mapping(dict):
    """A mapping with a name of its own is no layer either."""


@pytest.mark.parametrize("make", [dict, Mapping, types.MappingProxyType])
def test_loading_into_arrays(make):
    linear = nn.Linear(3, 2)
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(nn.ModuleDict({"fc": linear, "norm": nn.LayerNorm(2)}))

    def arrays():
        norm = {"gamma": np.zeros(2, "f4"), "beta": np.ones(2, "f4")}
        return make({"fc": make({"weight": np.zeros((3, 2), "f4"), "bias": np.zeros(2, "f4")}), "norm": make(norm)})

    target = arrays()
    with pytest.raises(errors.InvalidArgument, match=r"'fc' \(weight, bias\), 'norm' \(gamma, beta\)"):
        store.with_from_adapter(PyTorchToBurnAdapter).apply_to(target)
    assert not target["fc"]["weight"].any()
    store.with_from_adapter(PyTorchToBurnAdapter, types={"fc": nn.Linear, "norm": "LayerNorm"})
    assert store.apply_to(target).applied == ["fc.weight", "fc.bias", "norm.gamma", "norm.beta"]
    assert np.array_equal(target["fc"]["weight"], linear.weight.detach().numpy().T)
    assert target["norm"]["gamma"].tolist() == [1, 1]


def test_a_square_weight_is_not_loaded_untransposed():
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(nn.Sequential(nn.Linear(3, 3)))
    with pytest.raises(errors.InvalidArgument, match="types="):
        store.with_from_adapter(PyTorchToBurnAdapter).apply_to({"0": {"weight": np.zeros((3, 3), "f4")}})


def test_every_layer_needs_a_type():
    arrays = {"a": {"weight": np.zeros((3, 2))}, "b": {"weight": np.zeros((3, 2))}, "scale": np.zeros(1)}
    with pytest.raises(errors.InvalidArgument, match=r"do not say.*: 'b' \(weight\), '' \(scale\)\. Use"):
        collect(arrays, None, PyTorchToBurnAdapter, types={"a": "Linear"})
    a, b, _ = collect(arrays, None, PyTorchToBurnAdapter, types={"a": "Linear", ".*": None})
    assert (a.shape, b.shape) == ((2, 3), (3, 2))
    # Layers that the filter leaves out need none.
    (only,) = collect(arrays, PathFilter().with_regex("^a"), PyTorchToBurnAdapter, types={"a": "Linear"})
    assert only.shape == (2, 3)
    result = apply(arrays, [], PathFilter().with_regex("^a"), PyTorchToBurnAdapter, types={"a": "Linear"})
    assert len(result.missing) == 3


def test_types_go_before_what_the_module_says():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 2))

    model = nn.ModuleDict({"a": Mine(), "b": nn.Linear(3, 2)})
    shapes = {
        s.full_path: s.shape for s in collect(model, None, PyTorchToBurnAdapter, types={"a": "Linear", "b": None})
    }
    assert shapes == {"a.weight": (2, 3), "b.weight": (2, 3), "b.bias": (2,)}
    assert {s.full_path: s.shape for s in collect(model, None, PyTorchToBurnAdapter)}["a.weight"] == (3, 2)


def test_a_pattern_matches_a_whole_path_and_the_first_one_counts():
    arrays = {name: {"weight": np.zeros((3, 2))} for name in ("fc", "fc2", "head")}
    made = collect(arrays, None, PyTorchToBurnAdapter, types={"fc": "Linear", "fc.*": "Embedding", "head": "Linear"})
    assert [snapshot.shape for snapshot in made] == [(2, 3), (3, 2), (2, 3)]
    assert [snapshot.module_type for snapshot in made] == ["Linear", "Embedding", "Linear"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"fcc": "Linear", ".*": None}, r"no layer has a path that 'fcc' matches as a whole; the layers are 'fc'"),
        ({"f": "Linear", ".*": None}, "no layer has a path that 'f' matches"),
        ({"fc": "linear"}, "did you mean 'Linear'"),
        ({"fc": "layer_norm"}, "did you mean 'LayerNorm'"),
        ({"(": "Linear"}, "not a regular expression"),
    ],
)
def test_wrong_types(given, why):
    with pytest.raises(errors.InvalidArgument, match=why):
        collect({"fc": {"weight": np.zeros((3, 2))}}, None, PyTorchToBurnAdapter, types=given)


@pytest.mark.parametrize("adapter", [PyTorchToBurnAdapter(), HalfPrecisionAdapter()])
def test_every_name_that_an_adapter_knows_is_a_type(adapter):
    assert {"Linear", "LayerNorm", "BatchNorm1d", "BatchNorm", "RMSNorm", "RmsNorm"} <= set(adapter.layer_names)
    for name in adapter.layer_names:
        assert collect({"n": {"x": np.zeros(2)}}, None, adapter, types={"n": name})[0].module_type == name


def test_wrong_types_raise_at_once():
    store = SafetensorsStore.from_bytes(None)
    for add in (store.with_from_adapter, store.with_to_adapter):
        with pytest.raises(errors.SafetensorsError, match="did you mean 'BatchNorm1d'"):
            add(PyTorchToBurnAdapter, types={"fc": "batchnorm1d"})
        with pytest.raises(TypeError, match="types maps"):
            add(PyTorchToBurnAdapter, types="Linear")
        with pytest.raises(TypeError, match="a layer type"):
            add(PyTorchToBurnAdapter, types={"fc": 3})
    with pytest.raises(errors.InvalidArgument, match="there is no adapter"):
        collect({}, types={"fc": "Linear"})


def test_adapters_that_need_no_types():
    class Doubled(ModuleAdapter):
        def adapt(self, snapshot):
            return snapshot.mapped(lambda data: data.numpy() * 2)

    arrays = {"a": np.ones(2, "f4")}
    assert collect(arrays, None, FloatCastAdapter("F16"))[0].dtype == "F16"
    assert collect(arrays, None, Doubled)[0].numpy().tolist() == [2, 2]
    assert not FloatCastAdapter("F16").chain(Doubled()).needs_types
    assert FloatCastAdapter("F16").chain(HalfPrecisionAdapter()).needs_types


def test_an_adapter_of_ones_own_says_that_it_needs_types():
    class Scaled(ModuleAdapter):
        needs_types = True

        def adapt(self, snapshot):
            return snapshot.mapped(lambda data: data.numpy() * 2) if snapshot.module_type == "Scaler" else snapshot

    arrays = {"a": {"x": np.ones(2)}}
    with pytest.raises(errors.InvalidArgument, match="types="):
        collect(arrays, None, Scaled)
    assert collect(arrays, None, Scaled, types={"a": "Scaler"})[0].numpy().tolist() == [2, 2]


def test_snapshots_of_a_model_keep_their_types():
    named = {snapshot.full_path: snapshot for snapshot in collect(nn.Linear(3, 2))}
    (weight, _) = collect(named, None, PyTorchToBurnAdapter)
    assert weight.shape == (3, 2)
    assert TensorSnapshot.from_value("a", np.zeros(1), containers=["Net", "dict"]).module_type == "Net"
    # Parameters in lists of a torch module belong to no layer, and that is known.
    listed = nn.ParameterList([torch.zeros(3, 2)])
    assert collect(listed, None, PyTorchToBurnAdapter)[0].shape == (3, 2)
