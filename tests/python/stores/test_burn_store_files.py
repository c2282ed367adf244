"""Every example of burn-store's README about files: saving, loading, PyTorch's names and layouts, memory."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
from support.readme_models import Model, same
from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    KeyRemapper,
    ModuleSnapshot,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
)

torch = pytest.importorskip("torch")

nn = torch.nn


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model():
    return Model()


def test_burnpack(model):
    store = BurnpackStore.from_file("model.bpk").metadata("version", "1.0").metadata("description", "My trained model")
    model.save_into(store)

    other = Model()
    store = BurnpackStore.from_file("model.bpk")
    other.load_from(store)

    assert same(model, other)
    assert store.get_metadata()["description"] == "My trained model"
    assert weightstore.param_ids(model) == weightstore.param_ids(other)


def test_safetensors(model):
    store = SafetensorsStore.from_file("model.safetensors")
    model.save_into(store)

    other = Model()
    store = SafetensorsStore.from_file("model.safetensors")
    other.load_from(store)

    assert same(model, other)


def test_filtering_tensors(model):
    store = (
        SafetensorsStore.from_file("encoder.safetensors").with_regex(r"^encoder\..*").metadata("subset", "encoder_only")
    )
    model.save_into(store)
    assert all(name.startswith("encoder.") for name in store.keys())  # noqa: SIM118
    assert len(store.keys()) == 5

    model.save_into(SafetensorsStore.from_file("model.safetensors"))
    store = (
        SafetensorsStore.from_file("model.safetensors")
        .with_regex(r"^encoder\..*")
        .with_regex(r".*\.bias$")
        .with_full_path("decoder.scale")
    )
    result = Model().load_from(store)
    assert set(result.skipped) == {"decoder.layer0.weight", "decoder.norm.weight"}
    assert len(result.applied) == 8


class LayerNorm(nn.Module):
    """As Burn lays it out."""

    def __init__(self):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))


class Linear(nn.Module):
    """As Burn lays it out."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(4, 4)), nn.Parameter(torch.zeros(4))


class BurnModel(ModuleSnapshot, nn.Module):
    def __init__(self):
        super().__init__()
        for name in ("encoder", "decoder"):
            half = nn.Module()
            half.layer0, half.norm, half.scale = Linear(), LayerNorm(), nn.Parameter(torch.zeros(1))
            self.add_module(name, half)


def holds(burn_model, model):
    return torch.equal(burn_model.encoder.layer0.weight, model.encoder.layer0.weight.t()) and torch.equal(
        burn_model.decoder.norm.gamma, model.decoder.norm.weight
    )


def test_a_pytorch_file_into_a_model_of_burns_layout(model):
    torch.save({"state_dict": model.state_dict() | {"unknown": torch.zeros(1)}}, "pytorch_model.pth")

    store = (
        PytorchStore.from_file("pytorch_model.pth")
        .with_top_level_key("state_dict")
        .with_from_adapter(PyTorchToBurnAdapter)
        .allow_partial(True)
    )
    burn_model = BurnModel()
    result = burn_model.load_from(store)
    assert holds(burn_model, model)
    assert result.unused == ["unknown"]


def test_safetensors_of_pytorch_into_burns_layout_and_back(model):
    model.save_into(SafetensorsStore.from_file("pytorch_model.safetensors"))

    store = (
        SafetensorsStore.from_file("pytorch_model.safetensors")
        .with_from_adapter(PyTorchToBurnAdapter)
        .skip_enum_variants(True)
        .allow_partial(True)
    )
    burn_model = BurnModel()
    burn_model.load_from(store)
    assert holds(burn_model, model)

    store = (
        SafetensorsStore.from_file("for_pytorch.safetensors")
        .with_to_adapter(BurnToPyTorchAdapter)
        .skip_enum_variants(True)
    )
    burn_model.save_into(store)
    other = Model()
    other.load_state_dict(weightstore.open("for_pytorch.safetensors").load(framework="torch"))
    assert same(model, other)


def contiguous(model):
    return nn.ModuleDict({"fc": nn.ModuleList([layer for layer in model.fc if isinstance(layer, nn.Conv2d)])})


class WithGaps(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Conv2d(1, 1, 3))


def test_contiguous_layer_indices_of_pytorch_files():
    model, other = WithGaps(), contiguous(WithGaps())
    torch.save(model.state_dict(), "model.pth")

    store = PytorchStore.from_file("model.pth")
    assert store.apply_to(other).missing == []
    assert torch.equal(other["fc"][2].weight, model.fc[4].weight)

    store = PytorchStore.from_file("model.pth").map_indices_contiguous(False)
    assert store.apply_to(WithGaps()).missing == []


def test_contiguous_layer_indices_of_safetensors():
    model, other = WithGaps(), contiguous(WithGaps())
    SafetensorsStore.from_file("model.safetensors").collect_from(model)
    store = SafetensorsStore.from_file("model.safetensors").map_indices_contiguous(True)
    assert store.keys() == [f"fc.{i}.{name}" for i in range(3) for name in ("bias", "weight")]
    store.apply_to(other)
    assert torch.equal(other["fc"][1].weight, model.fc[2].weight)


def test_tensor_name_remapping():
    arrays = {"old_model.norm.gamma": np.ones(2), "old_model.norm.beta": np.zeros(2)}
    SafetensorsStore.from_file("model.safetensors").collect_from(arrays)
    store = (
        SafetensorsStore.from_file("model.safetensors")
        .with_key_remapping(r"^old_model\.", "new_model.")
        .with_key_remapping(r"\.gamma$", ".weight")
        .with_key_remapping(r"\.beta$", ".bias")
    )
    assert store.keys() == ["new_model.norm.bias", "new_model.norm.weight"]

    arrays = {"transformer.h.0.attn.q": np.ones(1), "transformer.h.11.mlp": np.ones(1)}
    SafetensorsStore.from_file("transformer.safetensors").collect_from(arrays)
    remapper = (
        KeyRemapper()
        .add_pattern(r"^transformer\.h\.(\d+)\.", "transformer.layer$1.")
        .add_pattern(r"^(.*?)\.attn\.", "$1.attention.")
    )
    store = SafetensorsStore.from_file("transformer.safetensors").remap(remapper)
    assert store.keys() == ["transformer.layer0.attention.q", "transformer.layer11.mlp"]


def test_remapping_while_loading_pytorch():
    torch.save({"model.norm1.weight": torch.ones(2)}, "model.pth")
    store = (
        PytorchStore.from_file("model.pth")
        .with_key_remapping(r"^model\.", "")
        .with_key_remapping(r"norm(\d+)", "norm_$1")
    )
    assert store.keys() == ["norm_1.weight"]


def test_memory_operations(model, capsys):
    store = BurnpackStore.from_bytes(None).with_regex(r"^encoder\..*").metadata("subset", "encoder_only")
    model.save_into(store)
    data = store.get_bytes()

    store = BurnpackStore.from_bytes(data).allow_partial(True)
    other = Model()
    result = other.load_from(store)
    assert same(model.encoder, other.encoder)

    store = SafetensorsStore.from_bytes(None).with_regex(r"^encoder\..*")
    model.save_into(store)
    assert sorted(weightstore.open(store.get_bytes())) == sorted(result.applied)

    print(f"Loaded {len(result.applied)} tensors")
    if result.missing:
        print(f"Missing: {result.missing}")
    assert capsys.readouterr().out.startswith("Loaded 5 tensors\nMissing: ['decoder.layer0.bias', ")


def test_embedded_models(model):
    store = BurnpackStore.from_bytes(None)
    model.save_into(store)
    model_data = store.get_bytes()  # in a program: importlib.resources, or a file linked into it

    store = BurnpackStore.from_static(model_data)
    other = Model()
    other.load_from(store)
    assert same(model, other)
    arrays = {name: np.zeros(tuple(tensor.shape), "f4") for name, tensor in model.state_dict().items()}
    weightstore.load_from(arrays, store)
    assert np.shares_memory(arrays["encoder.scale"], np.frombuffer(model_data, "u1"))


def test_file_based_zero_copy(model):
    model.save_into(BurnpackStore.from_file("large_model.bpk"))
    store = BurnpackStore.from_file("large_model.bpk").zero_copy(True)
    other = Model()
    other.load_from(store)
    assert same(model, other)
    snapshot = store.get_snapshot("encoder.scale")
    assert np.shares_memory(snapshot.numpy(), snapshot.numpy())


def test_in_memory_zero_copy(model):
    store = BurnpackStore.from_bytes(None)
    model.save_into(store)
    data = store.get_bytes()
    store = BurnpackStore.from_bytes(data).zero_copy(True)
    assert np.shares_memory(store.get_snapshot("encoder.scale").numpy(), np.frombuffer(data, "u1"))
    assert Model().load_from(store).missing == []
