"""Layers whose matrices torch.nn packs into one and Burn keeps in parts: split while saving, joined while loading."""

from __future__ import annotations

import numpy as np
import pytest

from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    FloatCastAdapter,
    HalfPrecisionAdapter,
    LoadError,
    PyTorchToBurnAdapter,
    SafetensorsStore,
    apply,
    collect,
    errors,
    param_ids,
)

torch = pytest.importorskip("torch")
nn = torch.nn


def to_burn(module, **options):
    return {s.full_path: s for s in collect(module, adapter=PyTorchToBurnAdapter(), **options)}


def test_attention_is_split():
    attention = nn.MultiheadAttention(4, 2)
    made = to_burn(nn.ModuleDict({"a": attention}))
    assert list(made) == [
        *(f"a.{name}.weight" for name in ("query", "key", "value")),
        *(f"a.{name}.bias" for name in ("query", "key", "value")),
        "a.output.weight",
        "a.output.bias",
    ]
    for i, name in enumerate(("query", "key", "value")):
        assert torch.equal(made[f"a.{name}.weight"].torch(), attention.in_proj_weight[4 * i : 4 * i + 4].t())
        assert torch.equal(made[f"a.{name}.bias"].torch(), attention.in_proj_bias[4 * i : 4 * i + 4])
    assert torch.equal(made["a.output.weight"].torch(), attention.out_proj.weight.t())


def test_the_layer_may_be_the_module():
    source, target = nn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 2)
    made = to_burn(source)
    assert {"query.weight", "output.weight", "output.bias"} <= set(made)
    result = apply(target, made, adapter=BurnToPyTorchAdapter())
    assert (len(result.applied), result.unused) == (4, [])
    assert torch.equal(source.out_proj.weight, target.out_proj.weight)


@pytest.mark.parametrize(
    ("layer", "gates"),
    [
        (nn.LSTM, ["input_gate", "forget_gate", "cell_gate", "output_gate"]),
        (nn.GRU, ["reset_gate", "update_gate", "new_gate"]),
    ],
)
def test_gates_are_split(layer, gates):
    module = layer(3, 2)
    made = to_burn(module)
    assert len(made) == 4 * len(gates)
    for i, gate in enumerate(gates):
        rows = slice(2 * i, 2 * i + 2)
        assert torch.equal(made[f"{gate}.input_transform.weight"].torch(), module.weight_ih_l0[rows].t())
        assert torch.equal(made[f"{gate}.hidden_transform.weight"].torch(), module.weight_hh_l0[rows].t())
        assert torch.equal(made[f"{gate}.input_transform.bias"].torch(), module.bias_ih_l0[rows])
        assert torch.equal(made[f"{gate}.hidden_transform.bias"].torch(), module.bias_hh_l0[rows])


def test_directions_and_layers_have_names_of_their_own():
    made = to_burn(nn.GRU(3, 2, bidirectional=True, bias=False))
    assert {name.partition(".")[0] for name in made} == {"forward", "reverse"}
    made = to_burn({"l": nn.LSTM(3, 2, num_layers=2, bidirectional=True)})
    assert {".".join(name.split(".")[:3]) for name in made} == {
        "l.0.forward",
        "l.0.reverse",
        "l.1.forward",
        "l.1.reverse",
    }
    assert made["l.1.reverse.cell_gate.input_transform.weight"].shape == (4, 2)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, kdim=4, vdim=3)
        self.inner = nn.ModuleList(
            [nn.MultiheadAttention(4, 2, bias=False), nn.LSTM(4, 3, num_layers=3, bidirectional=True)]
        )
        self.gru = nn.GRU(6, 2, bias=False)
        self.head = nn.Linear(2, 2)


@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_there_and_back(kind, dtype):
    source, target = Model().to(dtype), Model().to(dtype)
    store = kind.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter()).with_from_adapter(BurnToPyTorchAdapter())
    store.collect_from(source)
    assert not any("proj" in name or "_l0" in name for name in store.get_all_snapshots())
    result = store.apply_to(target)
    assert (result.applied, result.unused) == (list(source.state_dict()), [])
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name]), name


def test_onto_the_meta_device_and_other_types():
    source = Model()
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    store.collect_from(source)
    store.with_from_adapter(BurnToPyTorchAdapter())
    with torch.device("meta"):
        empty = Model()
    store.apply_to(empty)
    half = Model().half()
    store.apply_to(half)
    for name, value in source.state_dict().items():
        assert torch.equal(value, empty.state_dict()[name]), name
        assert torch.equal(value.half(), half.state_dict()[name]), name
    view = Model()
    store.zero_copy(True).apply_to(view)
    assert torch.equal(view.gru.weight_ih_l0, source.gru.weight_ih_l0)


def test_nothing_is_read_or_copied_before_it_is_written():
    attention = nn.MultiheadAttention(4, 2)
    made = to_burn(attention)
    with torch.no_grad():
        attention.in_proj_bias.copy_(torch.arange(12.0))
    assert made["key.bias"].numpy().tolist() == [4, 5, 6, 7]
    address = np.frombuffer(made["value.bias"]._values.view(), "u1").ctypes.data
    assert address == attention.in_proj_bias.data_ptr() + 32  # a view of the parameter
    with torch.device("meta"):
        assert to_burn(nn.LSTM(3, 2))["cell_gate.input_transform.weight"].shape == (3, 2)


def test_other_adapters_see_the_parts_as_layers_of_their_own():
    source = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2), "l": nn.LSTM(3, 2)})
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter().chain(HalfPrecisionAdapter()))
    store.collect_from(source)
    assert {snapshot.dtype for snapshot in store.get_all_snapshots().values()} == {"F16"}
    target = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2), "l": nn.LSTM(3, 2)})
    for chain in (
        HalfPrecisionAdapter().chain(BurnToPyTorchAdapter()),
        BurnToPyTorchAdapter().chain(FloatCastAdapter("F32")),
    ):
        store.with_from_adapter(chain).apply_to(target)
        assert torch.equal(target["a"].in_proj_weight, source["a"].in_proj_weight.half().float())
        assert torch.equal(target["l"].bias_hh_l0, source["l"].bias_hh_l0.half().float())


def test_types_say_what_the_layers_of_a_file_are():
    module = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2), "l": nn.LSTM(3, 2)})
    arrays = {name: value.numpy() for name, value in module.state_dict().items()}
    types = {"a": nn.MultiheadAttention, r"a\.out_proj": "Linear", "l": "LSTM"}
    made, expected = to_burn(arrays, types=types), to_burn(module)
    assert list(made) == list(expected)
    assert all(np.array_equal(made[name].numpy(), expected[name].numpy()) for name in made)
    with pytest.raises(errors.InvalidArgument, match="did you mean 'MultiheadAttention'"):
        to_burn(arrays, types={"a": "MultiHeadAttention", ".*": None})


def test_what_burn_has_nothing_for_is_an_error():
    with pytest.raises(errors.InvalidArgument, match="no parameter for bias_k") as caught:
        to_burn(nn.ModuleDict({"a": nn.MultiheadAttention(4, 2, add_bias_kv=True)}))
    assert caught.value.tensor == "a.bias_k"
    with pytest.raises(errors.InvalidArgument, match="no parameter for weight_hr_l0"):
        to_burn(nn.LSTM(3, 4, proj_size=2))


@pytest.mark.parametrize("value", [np.zeros(()), np.zeros((4, 2), "f4")])
def test_what_cannot_be_split(value):
    with pytest.raises(errors.InvalidArgument, match="cannot be split"):
        to_burn({"l": {"weight_ih_l0": value}}, types={"l": "GRU"})


def test_quantized_tensors_are_not_split(write_raw):
    data = write_raw({"l.bias_ih_l0": ("F4", (4, 2), bytes(4))}, "safetensors")
    with pytest.raises(errors.InvalidArgument, match="F4.*cannot be split"):
        to_burn(SafetensorsStore.from_bytes(data).get_all_snapshots(), types={"l": "LSTM"})


def test_what_a_subclass_adds_stays_as_it_is():
    class Scaled(nn.LSTM):
        def __init__(self):
            super().__init__(3, 2)
            self.scale = nn.Parameter(torch.ones(3))

    assert to_burn(nn.ModuleDict({"l": Scaled()}))["l.scale"].shape == (3,)


def test_a_part_that_is_not_there():
    source = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2)})
    snapshots = [s for name, s in to_burn(source).items() if name != "a.key.weight"]
    target = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2)})
    result = apply(target, snapshots, adapter=BurnToPyTorchAdapter())
    ((path, error),) = result.errors
    assert (path, type(error)) == ("a.in_proj_weight", LoadError)
    assert str(error).endswith("the source lacks a.key.weight")
    assert result.unused == []
    result = apply(target, [s for s in snapshots if "weight" not in s.full_path], adapter=BurnToPyTorchAdapter())
    assert result.missing == ["a.in_proj_weight", "a.out_proj.weight"]


def test_parts_that_do_not_fit_together():
    snapshots = to_burn(nn.MultiheadAttention(4, 2))
    snapshots["key.weight"] = snapshots["key.weight"].cast("F16")
    ((path, error),) = apply(nn.MultiheadAttention(4, 2), snapshots, adapter=BurnToPyTorchAdapter()).errors
    assert path == "in_proj_weight"
    assert "cannot be joined" in str(error)
    wide = to_burn(nn.MultiheadAttention(6, 2))
    result = apply(nn.MultiheadAttention(4, 2), wide, adapter=BurnToPyTorchAdapter())
    assert {path for path, _ in result.errors} == {"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"}


def test_a_module_gets_its_own_parts_under_other_names():
    attention = nn.MultiheadAttention(4, 2)
    query, key, value = attention.in_proj_weight.detach().clone().split(4)
    parts = to_burn(attention)
    parts["query.weight"], parts["value.weight"] = parts["value.weight"], parts["query.weight"]
    apply(attention, parts, adapter=BurnToPyTorchAdapter())
    assert torch.equal(attention.in_proj_weight, torch.cat([value, key, query]))


def test_filters_see_the_packed_parameter():
    source, target = nn.LSTM(3, 2), nn.LSTM(3, 2)
    store = BurnpackStore.from_bytes(None).with_regex("^bias").with_to_adapter(PyTorchToBurnAdapter())
    store.collect_from(source)
    assert len(store.keys()) == 8
    result = store.with_from_adapter(BurnToPyTorchAdapter()).allow_partial(True).apply_to(target)
    assert result.applied == ["bias_ih_l0", "bias_hh_l0"]


def test_parts_keep_their_ids():
    source = nn.ModuleDict({"a": nn.MultiheadAttention(4, 2)})
    store = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    store.collect_from(source)
    ids = {name: s.param_id for name, s in store.get_all_snapshots().items()}
    assert len(set(ids.values())) == 8
    renamed = nn.ModuleDict({"b": nn.MultiheadAttention(4, 2)})
    store.with_from_adapter(BurnToPyTorchAdapter()).with_key_remapping("^a", "b").apply_to(renamed)
    again = BurnpackStore.from_bytes(None).with_to_adapter(PyTorchToBurnAdapter())
    again.collect_from(renamed)
    assert {name.replace("b.", "a."): s.param_id for name, s in again.get_all_snapshots().items()} == ids
    assert param_ids(renamed)["b.out_proj.weight"] == ids["a.output.weight"]
