"""PytorchStore: files of torch.save into modules."""

from __future__ import annotations

import io

import numpy as np
import pytest

from weightstore import KeyRemapper, PytorchStore, PyTorchToBurnAdapter, SafetensorsStore, errors

torch = pytest.importorskip("torch")
nn = torch.nn


def saved(content, **options) -> PytorchStore:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return PytorchStore.from_bytes(buffer.getvalue())


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(5, 10), nn.Linear(10, 3)


@pytest.mark.parametrize("legacy", [False, True])
def test_a_state_dict(tmp_path, legacy):
    source, target = TwoLayers(), TwoLayers()
    path = tmp_path / "model.pt"
    torch.save(source.state_dict(), path, _use_new_zipfile_serialization=not legacy)
    store = PytorchStore.from_file(path)
    assert store.keys() == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]
    assert store.get_snapshot("fc1.weight").shape == (10, 5)
    result = store.apply_to(target)
    assert result.applied == list(source.state_dict())
    assert all(torch.equal(tensor, target.state_dict()[name]) for name, tensor in source.state_dict().items())


@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("meta", [False, True])
def test_views_transposed_and_shared_storages(tmp_path, zero_copy, meta):
    base = torch.arange(100.0)
    content = {"t": torch.arange(6.0).reshape(2, 3).t(), "a": base[10:20], "b": base[50:60], "s": base[::7]}
    path = tmp_path / "views.pt"
    torch.save(content, path)
    target = {name: torch.zeros(tensor.shape, device="meta" if meta else "cpu") for name, tensor in content.items()}
    PytorchStore.from_file(path).zero_copy(zero_copy).apply_to(target)
    for name, tensor in content.items():
        assert torch.equal(target[name], tensor), name
    arrays = {name: np.zeros(tensor.shape, "f4") for name, tensor in content.items()}
    PytorchStore.from_file(path).zero_copy(zero_copy).apply_to(arrays)
    for name, tensor in content.items():
        assert np.array_equal(arrays[name], tensor.numpy()), name


def test_a_checkpoint_below_its_key(testdata):
    path = testdata / "fixtures" / "pytorch" / "checkpoint.pt"
    store = PytorchStore.from_file(path)
    assert "model_state_dict.fc1.weight" in store.keys()  # noqa: SIM118
    store.with_top_level_key("model_state_dict")
    assert store.keys() == ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]
    model = TwoLayers()
    assert store.apply_to(model).missing == []
    expected = torch.load(path, weights_only=True)["model_state_dict"]
    assert torch.equal(model.fc1.weight, expected["fc1.weight"])
    deep = PytorchStore.from_file(path).with_top_level_key("optimizer_state_dict.state")
    assert deep.keys() == ["0.momentum_buffer"]
    with pytest.raises(errors.PytorchError, match="model_state_dict") as caught:
        PytorchStore.from_file(path).with_top_level_key("state").keys()
    assert isinstance(caught.value, errors.TensorNotFound)


def test_filters_and_renaming():
    source = TwoLayers()
    store = saved(source.state_dict()).with_regex(r"^fc1\.")
    assert store.apply_to(TwoLayers()).applied == ["fc1.weight", "fc1.bias"]
    store = saved(source.state_dict()).remap(KeyRemapper().add_pattern(r"^fc(\d)", "linear$1"))
    assert store.keys() == ["linear1.bias", "linear1.weight", "linear2.bias", "linear2.weight"]
    store = saved(source.state_dict()).with_predicate(lambda path, _: "bias" not in path)
    assert store.apply_to(TwoLayers()).skipped == ["fc1.bias", "fc2.bias"]
    with pytest.raises(errors.TensorNotFound, match="a filter does not make them optional"):
        saved({"fc1.weight": source.fc1.weight}).with_regex("^fc1.weight$").apply_to(TwoLayers())


def test_gaps_between_indices():
    def layers(*indices):
        return {"fc": {str(i): {"weight": torch.full((2,), float(i))} for i in indices}}

    source = layers(0, 2, 4, 6, 8)
    own, plain = layers(0, 2, 4, 6, 8), layers(*range(5))
    for target in (own, plain):
        result = saved(source).apply_to(target)
        assert (len(result.applied), result.missing, result.unused) == (5, [], [])
        assert [layer["weight"][0].item() for layer in target["fc"].values()] == [0, 2, 4, 6, 8]
    assert saved(plain).apply_to(layers(0, 2, 4, 6, 8)).missing == []
    assert saved(source).keys() == [f"fc.{i}.weight" for i in (0, 2, 4, 6, 8)]
    assert saved(source).map_indices_contiguous(True).keys() == [f"fc.{i}.weight" for i in range(5)]
    strict = saved(source).map_indices_contiguous(False).allow_partial(True)
    assert strict.apply_to(layers(*range(5))).missing == ["fc.1.weight", "fc.3.weight"]


def test_a_sequential_loads_its_own_file_and_a_contiguous_copy():
    def network():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 2, 3))

    source = network()
    copy = nn.ModuleList([nn.Conv2d(1, 2, 3), nn.Conv2d(2, 2, 3)])
    target = network()
    assert saved(source.state_dict()).apply_to(target).missing == []
    assert saved(source.state_dict()).apply_to(copy).missing == []
    assert torch.equal(copy[1].weight, source[2].weight)
    assert torch.equal(target[2].weight, source[2].weight)
    assert saved(copy.state_dict()).apply_to(network()).missing == []


def test_enum_variants():
    module = {"feature": {"BaseConv": {"weight": torch.zeros(2)}}}
    store = saved({"feature.weight": torch.ones(2)})
    with pytest.raises(errors.TensorNotFound, match="skip_enum_variants"):
        store.skip_enum_variants(False).apply_to(module)
    assert store.skip_enum_variants(True).apply_to(module).missing == []
    assert saved({"feature.weight": torch.ones(2)}).apply_to(module).applied == ["feature.BaseConv.weight"]


@pytest.mark.parametrize("kind", [PytorchStore, SafetensorsStore])
def test_the_weights_of_one_variant_do_not_go_into_another(kind):
    def network(*heads):
        return nn.ModuleDict({"heads": nn.ModuleDict({name: nn.Linear(2, 2) for name in heads})})

    source, target = network("Cat", "Bird"), network("Cat", "Dog")
    if kind is PytorchStore:
        store = saved(source.state_dict())
    else:
        store = SafetensorsStore.from_bytes(None)
        store.collect_from(source)
    store.skip_enum_variants(True)
    before = target.heads.Dog.weight.clone()
    with pytest.raises(errors.TensorNotFound, match="heads.Dog.weight") as caught:
        store.apply_to(target)
    assert caught.value.result.missing == ["heads.Dog.bias", "heads.Dog.weight"]
    assert caught.value.result.unused == ["heads.Bird.bias", "heads.Bird.weight"]
    result = store.allow_partial(True).apply_to(target)
    assert result.applied == ["heads.Cat.weight", "heads.Cat.bias"]
    assert torch.equal(target.heads.Dog.weight, before)


def test_another_part_of_a_list_is_missing_not_renumbered():
    def layers(*indices):
        return {"layers": {str(i): {"weight": torch.full((2,), float(i))} for i in indices}}

    target = layers(0, 1, 2)
    with pytest.raises(errors.TensorNotFound, match=r"differ only in their numbers: map_indices_contiguous\(True\)"):
        saved(layers(12, 13, 14)).apply_to(target)
    assert target["layers"]["0"]["weight"][0] == 0
    assert saved(layers(12, 13, 14)).map_indices_contiguous(True).apply_to(target).missing == []
    assert target["layers"]["0"]["weight"][0] == 12


def test_no_adapter_unless_asked_for():
    linear = nn.Linear(3, 2)
    target = nn.Linear(3, 2)
    saved(linear.state_dict()).apply_to(target)
    assert torch.equal(linear.weight, target.weight)

    class Linear(nn.Module):
        """As Burn lays it out."""

        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(2))

    burn = Linear()
    saved(linear.state_dict()).with_from_adapter(PyTorchToBurnAdapter).apply_to(burn)
    assert torch.equal(burn.weight, linear.weight.t())


def test_a_whole_model_with_unknown_objects():
    buffer = io.BytesIO()
    torch.save(nn.Sequential(nn.Linear(2, 3)), buffer)
    data = buffer.getvalue()
    with pytest.raises(errors.PytorchError, match="Sequential"):
        PytorchStore.from_bytes(data).opaque("error").keys()
    store = PytorchStore.from_bytes(data)
    target = nn.Sequential(nn.Linear(2, 3))
    assert store.apply_to(target).missing == []
    with pytest.raises(errors.InvalidArgument, match="'error' or 'skip'"):
        store.opaque("maybe")


def test_checksums_of_an_archive(tmp_path):
    path = tmp_path / "model.pt"
    torch.save({"t": torch.arange(1000)}, path)
    assert (
        PytorchStore.from_file(path).verify("lazy").apply_to({"t": torch.zeros(1000, dtype=torch.int64)}).is_success()
    )
    data = bytearray(path.read_bytes())
    data[data.index((999).to_bytes(8, "little"))] ^= 1
    path.write_bytes(data)
    assert PytorchStore.from_file(path).get_snapshot("t").torch()[999] != 999
    with pytest.raises(errors.PytorchError):
        PytorchStore.from_file(path).verify("lazy").apply_to({"t": torch.zeros(1000, dtype=torch.int64)})


def test_from_torch_to_safetensors_without_a_model(tmp_path):
    source = TwoLayers()
    torch.save({"epoch": 3, "state_dict": source.state_dict()}, tmp_path / "c.pt")
    target = SafetensorsStore.from_file(tmp_path / "c.safetensors")
    target.collect_from(PytorchStore.from_file(tmp_path / "c.pt").with_top_level_key("state_dict").get_all_snapshots())
    assert torch.equal(target.get_snapshot("fc2.weight").torch(), source.fc2.weight)


def flattened(value, path=""):
    """Every tensor in nested dicts, by its dotted name."""
    if torch.is_tensor(value):
        return {path: value.detach()}
    if not isinstance(value, dict):
        return {}
    found = {}
    for key, item in value.items():
        found |= flattened(item, f"{path}.{key}" if path else str(key))
    return found


def test_every_fixture_has_the_values_torch_reads(testdata):
    compared = 0
    for path in sorted((testdata / "fixtures" / "pytorch").glob("*.pt")):
        try:
            expected = flattened(torch.load(path, weights_only=True))
        except Exception:
            continue
        store = PytorchStore.from_file(path)
        assert store.keys() == sorted(expected), path.name
        for name, tensor in expected.items():
            found = store.get_snapshot(name).torch()
            assert found.dtype == tensor.dtype, (path.name, name)
            assert torch.equal(found.nan_to_num(7), tensor.nan_to_num(7)), (path.name, name)
            compared += 1
    assert compared >= 40
