"""Every example of burn-store's README about operating on models: transfer, merging, migration, direct access."""

from __future__ import annotations

import pytest

import weightstore
from support.readme_models import Model, same
from weightstore import (
    BurnpackStore,
    ModuleSnapshot,
    PathFilter,
    PytorchStore,
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
