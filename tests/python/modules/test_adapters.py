"""Adapters: between PyTorch's names and shapes and Burn's, and between precisions."""

from __future__ import annotations

import numpy as np
import pytest

from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    ChainAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    ModuleAdapter,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    TensorSnapshot,
    apply,
    collect,
    errors,
)

torch = pytest.importorskip("torch")
nn = torch.nn


def snapshot(path, value, *containers):
    return TensorSnapshot.from_value(path, np.asarray(value), containers=containers)


@pytest.mark.parametrize("adapter", [PyTorchToBurnAdapter(), BurnToPyTorchAdapter()])
def test_linear_weights_are_transposed(adapter):
    made = adapter.adapt(snapshot("fc.weight", np.zeros((10, 5), "f4"), "Net", "Linear"))
    assert made.shape == (5, 10)
    for dtype in ("f4", "i4"):
        made = adapter.adapt(snapshot("fc.weight", np.array([[1, 2, 3], [4, 5, 6]], dtype), "Linear"))
        assert made.numpy().reshape(-1).tolist() == [1, 4, 2, 5, 3, 6]
    made = adapter.adapt(snapshot("fc.weight", np.array([[1.0, 2], [3, 4]]), "Linear", "ModuleList"))
    assert made.numpy().reshape(-1).tolist() == [1, 3, 2, 4]


@pytest.mark.parametrize("adapter", [PyTorchToBurnAdapter(), BurnToPyTorchAdapter()])
def test_everything_else_stays(adapter):
    for path, containers in [
        ("fc.bias", ["Linear"]),
        ("conv.weight", ["Conv2d"]),
        ("weight", []),
        ("e.weight", ["Embedding"]),
    ]:
        before = snapshot(path, np.zeros((3, 2) if path.endswith("weight") else (3,)), *containers)
        after = adapter.adapt(before)
        assert (after.full_path, after.shape) == (path, before.shape)


@pytest.mark.parametrize(
    "norm",
    ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "BatchNorm", "LayerNorm", "GroupNorm", "RMSNorm", "RmsNorm"]
    + ["InstanceNorm", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"],
)
def test_norms_are_renamed(norm):
    to_burn, to_torch = PyTorchToBurnAdapter(), BurnToPyTorchAdapter()
    for torch_name, burn_name in (("weight", "gamma"), ("bias", "beta")):
        assert to_burn.adapt(snapshot(f"n.{torch_name}", np.zeros(2), norm)).full_path == f"n.{burn_name}"
        assert to_torch.adapt(snapshot(f"n.{burn_name}", np.zeros(2), norm)).full_path == f"n.{torch_name}"
        assert to_burn.get_alternative_param_name(burn_name, norm) == torch_name
        assert to_torch.get_alternative_param_name(torch_name, norm) == burn_name
    assert to_burn.get_alternative_param_name("gamma", "Linear") is None
    assert to_burn.adapt(snapshot("n.running_mean", np.zeros(2), norm)).full_path == "n.running_mean"


@pytest.mark.parametrize("layer", ["PReLU", "PRelu"])
def test_prelu_is_renamed(layer):
    to_burn, to_torch = PyTorchToBurnAdapter(), BurnToPyTorchAdapter()
    assert to_burn.adapt(snapshot("act.weight", np.zeros(2), layer)).full_path == "act.alpha"
    assert to_torch.adapt(snapshot("act.alpha", np.zeros(2), layer)).full_path == "act.weight"
    assert to_torch.get_alternative_param_name("weight", layer) == "alpha"
    assert to_burn.get_alternative_param_name("alpha", layer) == "weight"
    assert to_torch.get_alternative_param_name("bias", layer) is None


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3), nn.LayerNorm(3), nn.GroupNorm(1, 3)
    )


def test_a_model_saved_for_burn_has_its_names_and_shapes():
    model = make_model()
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter)
    store.collect_from(model)
    shapes = {name: snapshot.shape for name, snapshot in store.get_all_snapshots().items()}
    assert shapes == {
        "0.bias": (2,),
        "0.weight": (2, 1, 3, 3),
        "1.beta": (2,),
        "1.gamma": (2,),
        "1.running_mean": (2,),
        "1.running_var": (2,),
        "3.bias": (3,),
        "3.weight": (8, 3),
        "4.beta": (3,),
        "4.gamma": (3,),
        "5.beta": (3,),
        "5.gamma": (3,),
    }
    assert np.array_equal(store.get_snapshot("3.weight").numpy(), model[3].weight.detach().numpy().T)

    other = make_model()
    for parameter in other.parameters():
        nn.init.normal_(parameter)
    result = BurnpackStore.from_bytes(store.get_bytes()).with_from_adapter(BurnToPyTorchAdapter).apply_to(other)
    assert (len(result.applied), result.missing, result.unused, result.errors) == (12, [], [], [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_without_the_adapter_the_count_of_batches_is_missing():
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    store.collect_from(nn.BatchNorm1d(2))
    with pytest.raises(errors.TensorNotFound) as caught:
        store.apply_to(nn.BatchNorm1d(2))
    assert caught.value.result.missing == ["bias", "num_batches_tracked", "weight"]


def test_a_torch_file_into_a_module_of_burns_shapes():
    class LayerNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma, self.beta = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))

    class Linear(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(4, 3))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.inner = Linear(), nn.ModuleList([LayerNorm()])

    weight = torch.rand(3, 4)
    state = {"fc.weight": weight, "inner.0.weight": torch.ones(3), "inner.0.bias": torch.full((3,), 2.0)}
    net = Net()
    result = apply(net, collect(state), None, PyTorchToBurnAdapter())
    assert result.applied == ["fc.weight", "inner.0.gamma", "inner.0.beta"]
    assert (result.missing, result.unused) == ([], [])
    assert torch.equal(net.fc.weight, weight.t())
    assert net.inner[0].beta.tolist() == [2, 2, 2]


# ---- precision -------------------------------------------------------------------------------------------------------


def test_half_precision_there_and_back():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.PReLU(), nn.InstanceNorm1d(4, affine=True)
    )
    store = SafetensorsStore.from_bytes(None).with_to_adapter(HalfPrecisionAdapter())
    store.collect_from(model)
    types = {name: snapshot.dtype for name, snapshot in store.get_all_snapshots().items()}
    assert {name for name, dtype in types.items() if dtype == "F16"} == {
        "0.weight", "0.bias", "2.weight", "2.bias", "3.weight", "4.weight", "4.bias",
    }  # fmt: skip
    assert types["1.weight"] == types["1.running_mean"] == "F32"
    assert types["1.num_batches_tracked"] == "I64"

    other = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4), nn.PReLU(), nn.InstanceNorm1d(4, affine=True)
    )
    store.with_from_adapter(HalfPrecisionAdapter()).apply_to(other)
    assert all(parameter.dtype == torch.float32 for parameter in other.parameters())
    assert torch.equal(other[0].weight, model[0].weight.half().float())


def test_half_precision_by_layer():
    def dtype(adapter, layer, kind="f4"):
        return adapter.adapt(snapshot("x.weight", np.zeros(2, kind), layer)).dtype

    adapter = HalfPrecisionAdapter()
    layers = [
        "Linear",
        "Embedding",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "ConvTranspose1d",
        "ConvTranspose2d",
        "ConvTranspose3d",
    ]
    for layer in [
        *layers,
        "DeformConv2d",
        "LayerNorm",
        "GroupNorm",
        "InstanceNorm",
        "InstanceNorm2d",
        "RMSNorm",
        "PReLU",
    ]:
        assert dtype(adapter, layer) == "F16"
    assert dtype(adapter, "BatchNorm2d") == "F32"
    assert dtype(adapter.with_module("BatchNorm2d"), "BatchNorm2d") == "F16"
    assert dtype(adapter, "BatchNorm1d") == "F32"
    assert dtype(adapter.with_module("Struct:BatchNorm"), "BatchNorm1d") == "F16"
    assert dtype(adapter.without_module("LayerNorm"), "LayerNorm") == "F32"
    assert dtype(adapter.without_module("Struct:RmsNorm"), "RMSNorm") == "F32"
    with pytest.raises(errors.InvalidArgument, match="LayerNorm is not converted"):
        adapter.without_module("LayerNorm")
    for kind in ("f8", "i4"):
        assert dtype(adapter, "Linear", kind) == {"f8": "F64", "i4": "I32"}[kind]
    assert dtype(adapter, "Linear", "f2") == "F32"
    assert adapter.adapt(snapshot("x", np.zeros(2, "f4"))).dtype == "F32"


def test_float_cast():
    values = torch.tensor([1, -2, 0.5, 4, -0.25, 8]).bfloat16()
    (before,) = collect({"x": values})
    adapter = FloatCastAdapter("F16")
    after = adapter.adapt(before)
    assert (after.dtype, after.torch().tolist()) == ("F16", values.tolist())
    assert adapter.adapt(after)._values is after._values
    assert adapter.adapt(snapshot("i", np.zeros(2, "i4"))).dtype == "I32"
    assert adapter.adapt(snapshot("b", np.zeros(2, "?"))).dtype == "BOOL"
    assert FloatCastAdapter.to(torch.bfloat16).dtype == "BF16"
    with pytest.raises(errors.InvalidArgument, match="cannot cast to I32"):
        FloatCastAdapter("I32")
    with pytest.raises(TypeError, match="not an element type"):
        FloatCastAdapter("float33")


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("bf16", "BF16"),
        ("bfloat16", "BF16"),
        ("float16", "F16"),
        ("fp16", "F16"),
        ("f16", "F16"),
        ("half", "F16"),
        ("float32", "F32"),
        ("fp32", "F32"),
        ("f32", "F32"),
        ("float64", "F64"),
        ("fp64", "F64"),
        ("f64", "F64"),
        ("F32", "F32"),
        (np.float16, "F16"),
        (torch.float64, "F64"),
    ],
)
def test_names_of_float_types(name, stored):
    assert FloatCastAdapter(name).dtype == stored


def test_a_cast_by_an_adapter_is_adopted():
    model = nn.Linear(2, 2)
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(model)
    other = nn.Linear(2, 2)
    store.with_from_adapter(FloatCastAdapter("BF16")).apply_to(other)
    assert other.weight.dtype == torch.bfloat16
    assert isinstance(other.weight, nn.Parameter)
    third = nn.Linear(2, 2)
    store.dtype_policy("cast").apply_to(third)
    assert third.weight.dtype == torch.float32
    assert torch.equal(third.weight, model.weight.bfloat16().float())


# ---- chains and adapters of one's own --------------------------------------------------------------------------------


class Rename(ModuleAdapter):
    def __init__(self, before, after):
        self.before, self.after = before, after

    def adapt(self, snapshot):
        return snapshot.renamed(snapshot.full_path.replace(self.before, self.after))

    def get_alternative_param_name(self, param_name, container_type):
        return self.after if param_name == self.before else None


def test_chains_pipe():
    chain = Rename("weight", "a").chain(Rename("a", "b")).chain(Rename("b", "c"))
    assert isinstance(chain, ChainAdapter)
    assert chain.adapt(snapshot("x.weight", np.zeros(1))).full_path == "x.c"
    assert ChainAdapter().adapt(snapshot("x", np.zeros(1))).full_path == "x"


def test_alternative_names_of_chains():
    assert (
        Rename("gamma", "weight").chain(Rename("weight", "scale")).get_alternative_param_name("gamma", "L") == "scale"
    )
    assert Rename("gamma", "weight").chain(Rename("x", "y")).get_alternative_param_name("gamma", "L") == "weight"
    assert Rename("x", "y").chain(Rename("gamma", "weight")).get_alternative_param_name("gamma", "L") == "weight"
    assert Rename("x", "y").chain(Rename("z", "y")).get_alternative_param_name("gamma", "L") is None


def test_a_chain_transposes_and_halves_in_one_go():
    layer = nn.Linear(3, 2)
    (weight, _) = collect(layer, None, PyTorchToBurnAdapter().chain(HalfPrecisionAdapter()))
    assert (weight.shape, weight.dtype) == ((3, 2), "F16")
    assert np.array_equal(weight.numpy(), layer.weight.detach().half().numpy().T)
    assert BurnToPyTorchAdapter().chain(FloatCastAdapter("F32")).is_optional("num_batches_tracked", "BatchNorm2d")


def test_an_adapter_of_ones_own_splits_a_packed_weight():
    class Query(ModuleAdapter):
        """The first third of the packed projection of MultiheadAttention."""

        def adapt(self, snapshot):
            if not snapshot.full_path.endswith("in_proj_weight"):
                return None
            rows, columns = snapshot.shape
            return snapshot.renamed("query.weight").mapped(
                lambda data: data.numpy()[: rows // 3].copy(), shape=(rows // 3, columns)
            )

    attention = nn.MultiheadAttention(4, 2)
    (query,) = collect(attention, None, Query())
    assert (query.full_path, query.shape) == ("query.weight", (4, 4))
    assert np.array_equal(query.numpy(), attention.in_proj_weight.detach().numpy()[:4])


def test_what_is_no_adapter():
    with pytest.raises(TypeError, match="ModuleAdapter"):
        SafetensorsStore.from_bytes(None).with_to_adapter(lambda snapshot: snapshot)
    with pytest.raises(TypeError, match="ModuleAdapter"):
        ChainAdapter(str)


def test_an_adapter_that_fails_while_loading():
    class Broken(ModuleAdapter):
        def adapt(self, snapshot):
            raise RuntimeError("no idea")

    layer = nn.Linear(2, 2)
    before = layer.weight.clone()
    store = SafetensorsStore.from_bytes(None)
    store.collect_from(nn.Linear(2, 2))
    with pytest.raises(errors.ValidationError, match="no idea"):
        store.with_from_adapter(Broken()).apply_to(layer)
    assert torch.equal(layer.weight, before)


def test_an_adapter_may_make_several_tensors_of_one():
    class Halves(ModuleAdapter):
        def adapt(self, snapshot):
            size = snapshot.shape[0] // 2
            return [
                snapshot.mapped(lambda data, i=i: data.numpy()[i * size :][:size], shape=(size,)).renamed(
                    f"{snapshot.full_path}.{i}"
                )
                for i in range(2)
            ]

    store = SafetensorsStore.from_bytes(None).with_to_adapter(Halves().chain(FloatCastAdapter("F64")).chain(Halves()))
    store.collect_from({"a": np.arange(4, dtype="f4")})
    made = store.get_all_snapshots()
    assert {name: made[name].numpy().tolist() for name in made} == {
        "a.0.0": [0],
        "a.0.1": [1],
        "a.1.0": [2],
        "a.1.1": [3],
    }
    assert {snapshot.dtype for snapshot in made.values()} == {"F64"}
    ((path, error),) = apply(
        {"a": np.zeros(4)}, {"a": TensorSnapshot.from_value("a", np.zeros(4))}, adapter=Halves()
    ).errors
    assert path == "a"
    assert "several tensors for one parameter" in str(error)
