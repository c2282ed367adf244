"""Applying tensors to a module: both phases, the mixin and the free functions, and all of it against a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
from support.stores import saved
from weightstore import (
    BurnpackStore,
    ModuleSnapshot,
    PathFilter,
    SafetensorsStore,
    apply,
    collect,
    errors,
    load_from,
    save_into,
)

torch = pytest.importorskip("torch")

nn = torch.nn

pytestmark = pytest.mark.usefixtures("both_ways")


def test_nothing_is_read_for_what_is_not_applied():
    read = []

    def deferred(name):
        return weightstore.DeferredTensor("F64", (1,), lambda: read.append(name) or bytes(8))

    snapshots = collect({name: deferred(name) for name in ("a", "filtered", "unused", "wrong")})
    target = {"a": np.ones(1), "filtered": np.ones(1), "wrong": np.ones(2), "missing": np.ones(1)}
    result = apply(target, snapshots, PathFilter().with_full_paths(["a", "wrong", "missing"]))
    assert (result.applied, result.skipped, result.unused) == (["a"], ["filtered"], ["unused"])
    assert read == ["a"]


def test_a_failing_read_names_what_was_replaced():
    def fail():
        raise OSError("unplugged")

    source = {"a": np.ones(2), "b": weightstore.DeferredTensor("F64", (2,), fail), "c": np.ones(2)}
    target = {name: np.zeros(2) for name in "abc"}
    with pytest.raises(errors.ValidationError, match="unplugged") as caught:
        apply(target, collect(source))
    assert caught.value.replaced == ["a", "b"]
    assert "2 parameters had been replaced" in caught.value.__notes__[0]
    assert target["a"].tolist() == [1, 1]
    assert target["c"].tolist() == [0, 0]
    assert isinstance(caught.value.__cause__, OSError)


def test_a_damaged_file_is_found_while_reading(tmp_path):
    path = tmp_path / "m.bpk"
    BurnpackStore.from_file(path).checksums(True).collect_from({"a": np.ones(300), "b": np.ones(300)})
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    target = {"a": np.zeros(300), "b": np.zeros(300)}
    BurnpackStore.from_file(path).apply_to({"a": np.zeros(300), "b": np.zeros(300)})
    with pytest.raises(errors.FormatError, match="b") as caught:
        BurnpackStore.from_file(path).verify("lazy").apply_to(target)
    assert isinstance(caught.value, errors.BurnpackError)
    assert set(caught.value.replaced) == {"a", "b"}


def test_progress_counts_to_the_end_and_cancels(tmp_path):
    path = tmp_path / "m.safetensors"
    source = {"a": np.ones(1000), "b": np.ones((30, 20), "f4"), "c": torch.ones(7)}
    seen = []
    SafetensorsStore.from_file(path).progress(lambda *step: seen.append(step)).collect_from(source)
    assert seen[-1][:2] == (path.stat().st_size, path.stat().st_size)
    seen.clear()
    target = {"a": np.zeros(1000), "b": np.zeros((30, 20)), "c": torch.zeros(7, device="meta")}
    SafetensorsStore.from_file(path).progress(lambda *step: seen.append(step)).apply_to(target)
    total = 8000 + 2400 + 28
    assert seen[-1][:2] == (total, total)
    assert [step[0] for step in seen] == sorted(step[0] for step in seen)
    with pytest.raises(errors.OperationCancelled) as caught:
        SafetensorsStore.from_file(path).progress(lambda *_: False).apply_to({"a": np.zeros(1000, "f4")})
    assert isinstance(caught.value, errors.SafetensorsError)
    with pytest.raises(TypeError, match="progress"):
        SafetensorsStore.from_file(path).progress("yes")


class Net(ModuleSnapshot, nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)


def test_the_mixin():
    one, other = Net(), Net()
    assert other.apply(one.collect(PathFilter().with_regex("weight"))).missing == ["fc.bias"]
    assert torch.equal(one.fc.weight, other.fc.weight)
    seen = []
    assert other.apply(lambda module: seen.append(type(module).__name__)) is other
    assert seen == ["Linear", "Net"]
    store = BurnpackStore.from_bytes(None)
    one.save_into(store)
    assert other.load_from(store).applied == ["fc.weight", "fc.bias"]
    assert torch.equal(one.fc.bias, other.fc.bias)
    assert other.half().to(torch.float32) is other
    with pytest.raises(TypeError, match=r"before torch\.nn\.Module"):
        type("Wrong", (nn.Module, ModuleSnapshot), {})


def test_free_functions_serve_any_module():
    store = SafetensorsStore.from_bytes(None)
    save_into(nn.Linear(2, 2), store)
    target = {"weight": np.zeros((2, 2), "f4"), "bias": np.zeros(2, "f4")}
    assert load_from(target, store).applied == ["weight", "bias"]
    assert np.array_equal(target["weight"], store.get_snapshot("weight").numpy())


def test_of_several_snapshots_with_one_name_the_last_counts():
    target = {"a": np.zeros(1)}
    apply(target, collect({"a": np.ones(1)}) + collect({"a": np.full(1, 2.0)}))
    assert target["a"] == [2]
    (snapshot,) = collect({"elsewhere": np.full(1, 3.0)})
    apply(target, {"a": snapshot})
    assert target["a"] == [3]
    with pytest.raises(TypeError, match="expected snapshots"):
        apply(target, {"a": np.ones(1)})
    with pytest.raises(TypeError, match="expected snapshots"):
        apply(target, [np.ones(1)])


def test_snapshots_keep_their_containers_on_the_way_into_a_store():
    snapshots = collect(nn.Sequential(nn.Linear(1, 1), nn.LayerNorm(1)))
    for several in (snapshots, iter(snapshots), {snapshot.full_path: snapshot for snapshot in snapshots}):
        store = SafetensorsStore.from_bytes(None).with_predicate(lambda _, container: container.endswith("Linear"))
        store.with_to_adapter(weightstore.PyTorchToBurnAdapter).collect_from(several)
        assert store.keys() == ["0.bias", "0.weight"]


SHAPES = st.sampled_from([(), (2,), (3,), (2, 2), (0,)])

MODULES = st.dictionaries(st.sampled_from("a b c.x c.y d.0.w d.1.w e".split()), SHAPES, max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    source=MODULES, target=MODULES, chosen=st.sets(st.sampled_from("a b c.x d.0.w e".split())), torch_side=st.booleans()
)
def test_against_a_simple_model(source, target, chosen, torch_side):
    values = {name: np.full(shape, i + 1.0) for i, (name, shape) in enumerate(source.items())}
    make = (lambda shape: torch.zeros(shape, dtype=torch.float64)) if torch_side else np.zeros
    module = {name: make(shape) for name, shape in target.items()}
    store = saved(values).with_filter(PathFilter.from_paths(chosen)).validate(False).allow_partial(True)
    if target and chosen.isdisjoint(target):
        with pytest.raises(errors.InvalidArgument, match="matches none"):
            store.apply_to(module)
        return
    result = store.apply_to(module)
    found = [name for name in target if name in source]
    fitting = [name for name in found if name in chosen and source[name] == target[name]]
    assert result.applied == fitting
    assert result.skipped == sorted(set(found) - chosen)
    assert result.missing == sorted(set(target) - set(source))
    assert result.unused == sorted(set(source) - set(target))
    assert [error.path for error in result.errors] == [n for n in found if n in chosen and source[n] != target[n]]
    for name, value in module.items():
        expected = values[name] if name in fitting else np.zeros(target[name])
        assert np.array_equal(np.asarray(value), expected)


def test_a_module_trades_tensors_with_itself():
    layers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    before = {name: tensor.clone() for name, tensor in layers.state_dict().items()}
    snapshots = collect(layers)
    for snapshot in snapshots:
        snapshot.full_path = snapshot.full_path.translate({ord("0"): "1", ord("1"): "0"})
    assert len(apply(layers, snapshots).applied) == 4
    assert torch.equal(layers[0].weight, before["1.weight"])
    assert torch.equal(layers[1].bias, before["0.bias"])

    weight = layers[0].weight.clone()
    apply(layers, [snapshot.transposed() for snapshot in collect(layers) if snapshot.full_path == "0.weight"])
    assert torch.equal(layers[0].weight, weight.t())
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros((3, 2))}
    apply(arrays, [*(s.transposed().renamed("b") for s in collect(arrays)[:1]), *collect(arrays)[:1]])
    assert arrays["b"].tolist() == arrays["a"].T.tolist()
