"""What burn-store's README shows, in Python: every example, in its order."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
from weightstore import (
    BurnpackStore,
    BurnToPyTorchAdapter,
    KeyRemapper,
    ModuleSnapshot,
    PathFilter,
    PytorchStore,
    PyTorchToBurnAdapter,
    SafetensorsStore,
)

torch = pytest.importorskip("torch")
nn = torch.nn


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer0 = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.rand(1))


class Model(ModuleSnapshot, nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Half(), Half()
        for parameter in self.parameters():
            nn.init.normal_(parameter)


def same(one, other, names=None):
    other = other.state_dict()
    return all(
        torch.equal(tensor, other[name]) for name, tensor in one.state_dict().items() if names is None or name in names
    )


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model():
    return Model()


# ---- quick start -----------------------------------------------------------------------------------------------------


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


# ---- PyTorch interoperability ----------------------------------------------------------------------------------------


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


# ---- names -----------------------------------------------------------------------------------------------------------


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


# ---- memory ----------------------------------------------------------------------------------------------------------


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


# ---- surgery ---------------------------------------------------------------------------------------------------------


def test_direct_model_to_model_transfer():
    model1, model2 = Model(), Model()
    snapshots = model1.collect(None, None, False)
    result = model2.apply(snapshots, None, None, False)
    assert len(result.applied) == 10
    assert same(model1, model2)

    model2 = Model()
    before = model2.decoder.scale.clone()
    chosen = PathFilter().with_regex(r"^encoder\..*")
    snapshots = model1.collect(chosen.clone(), None, False)
    result = model2.apply(snapshots, chosen, None, False)
    assert same(model1.encoder, model2.encoder)
    assert torch.equal(model2.decoder.scale, before)

    model2 = nn.ModuleDict({"transformer": Model()})
    snapshots = model1.collect(None, None, False)
    for snapshot in snapshots:
        snapshot.full_path = snapshot.full_path.replace("encoder.", "transformer.encoder.")
    weightstore.apply(model2, snapshots, None, None, False)
    assert same(model1.encoder, model2["transformer"].encoder)


def test_partial_loading_and_exports(model):
    store = SafetensorsStore.from_file("encoder_only.safetensors").with_regex(r"^encoder\..*")
    model.save_into(store)

    store = SafetensorsStore.from_file("encoder_only.safetensors").allow_partial(True)
    result = Model().load_from(store)
    assert (len(result.applied), len(result.missing)) == (5, 5)


def test_merging_multiple_models():
    base_model, specialized_model, target_model = Model(), Model(), Model()
    merged = []
    merged.extend(base_model.collect(None, None, False))
    encoder_filter = PathFilter().with_regex(r"^encoder\..*")
    merged.extend(specialized_model.collect(encoder_filter, None, False))
    target_model.apply(merged, None, None, False)
    assert same(specialized_model.encoder, target_model.encoder)
    assert same(base_model.decoder, target_model.decoder)

    base_model.save_into(SafetensorsStore.from_file("base.safetensors"))
    specialized_model.save_into(SafetensorsStore.from_file("encoder.safetensors"))
    model = Model()
    base_store = SafetensorsStore.from_file("base.safetensors")
    model.load_from(base_store)
    encoder_store = SafetensorsStore.from_file("encoder.safetensors").with_regex(r"^encoder\..*").allow_partial(True)
    model.load_from(encoder_store)
    assert same(target_model, model)


class TransformerModel(ModuleSnapshot, nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Module()
        for i in range(2):
            block = nn.Module()
            block.attention, block.mlp = nn.Linear(4, 4), nn.Linear(4, 4)
            self.transformer.add_module(f"layer{i}", block)


def test_migrating_a_pytorch_transformer():
    blocks = nn.ModuleList(nn.ModuleDict({"attn": nn.Linear(4, 4), "mlp": nn.Linear(4, 4)}) for _ in range(2))
    source = nn.ModuleDict({"transformer": nn.ModuleDict({"h": blocks}), "head": nn.Linear(4, 2)})
    torch.save({"state_dict": source.state_dict(), "epoch": 3}, "pytorch_transformer.pth")

    store = (
        PytorchStore.from_file("pytorch_transformer.pth")
        .with_top_level_key("state_dict")
        .with_regex(r"^transformer\..*")
        .with_key_remapping(r"^transformer\.h\.(\d+)\.", "transformer.layer$1.")
        .with_key_remapping(r"\.attn\.", ".attention.")
        .allow_partial(True)
    )
    model = TransformerModel()
    result = model.load_from(store)
    assert len(result.applied) == 8
    assert not result.errors
    assert torch.equal(model.transformer.layer1.attention.weight, blocks[1]["attn"].weight)

    save_store = (
        SafetensorsStore.from_file("migrated_model.safetensors")
        .metadata("source", "pytorch")
        .metadata("converted_by", "weightstore")
    )
    model.save_into(save_store)
    assert save_store.get_metadata()["source"] == "pytorch"


def test_reading_a_config():
    torch.save({"config": {"n_head": 2, "layers": [1, 2], "name": "x"}, "w": torch.zeros(1)}, "with_config.pt")
    assert weightstore.read_config("with_config.pt", "config") == {"n_head": 2, "layers": [1, 2], "name": "x"}


# ---- direct access ---------------------------------------------------------------------------------------------------


def test_direct_tensor_access(model, capsys):
    model.save_into(BurnpackStore.from_file("model.bpk"))
    store = BurnpackStore.from_file("model.bpk")

    names = store.keys()
    print(f"Model contains {len(names)} tensors:")
    for name in names:
        print(f"  - {name}")
    snapshots = store.get_all_snapshots()
    for name, snapshot in snapshots.items():
        print(f"{name}: {snapshot.shape} {snapshot.dtype}")
    snapshot = store.get_snapshot("encoder.layer0.weight")
    if snapshot is not None:
        data = snapshot.to_data()
        print(f"Shape: {data.shape}, DType: {data.dtype}")
    assert "Shape: (4, 4), DType: F32" in capsys.readouterr().out
    assert torch.equal(snapshot.torch(), model.encoder.layer0.weight)


def test_predicates_and_containers(model):
    model.save_into(SafetensorsStore.from_file("model.safetensors"))
    store = SafetensorsStore.from_file("model.safetensors").with_predicate(
        lambda path, _container: "weight" in path and "bias" not in path
    )
    assert len(Model().load_from(store).applied) == 4
    store = SafetensorsStore.from_file("model.safetensors").with_predicate(
        lambda _path, container: container.split(".")[-1] == "Linear"
    )
    assert {name.rsplit(".", 1)[0] for name in Model().load_from(store).applied} == {"encoder.layer0", "decoder.layer0"}


def test_handling_load_results(model, capsys):
    model.encoder.scale = nn.Parameter(torch.zeros(7))
    model.save_into(SafetensorsStore.from_file("model.safetensors"))
    store = SafetensorsStore.from_file("model.safetensors").validate(False)
    result = Model().load_from(store)
    print(f"Applied: {len(result.applied)} tensors")
    print(f"Skipped: {len(result.skipped)} tensors")
    print(f"Missing: {result.missing}")
    print(f"Unused: {result.unused}")
    if result.errors:
        for path, error in result.errors:
            print(f"Error loading {path}: {error}")
    assert "Error loading encoder.scale: shape [7] was found where [1] is expected" in capsys.readouterr().out
    assert len(result.applied) == 9


def test_format_conversion_without_the_model(model):
    model.save_into(SafetensorsStore.from_file("model.safetensors"))
    BurnpackStore.from_file("model.bpk").collect_from(
        SafetensorsStore.from_file("model.safetensors").get_all_snapshots()
    )
    weightstore.convert("model.safetensors", "same.bpk")
    other = Model()
    other.load_from(BurnpackStore.from_file("model.bpk"))
    assert same(model, other)
    assert BurnpackStore.from_file("same.bpk").keys() == BurnpackStore.from_file("model.bpk").keys()
