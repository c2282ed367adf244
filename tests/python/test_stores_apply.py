"""Applying tensors to a module: what is set, what is reported, and what stays."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
from weightstore import (
    ApplyResult,
    BurnpackStore,
    MissingTensor,
    ModuleSnapshot,
    PathFilter,
    SafetensorsStore,
    ShapeMismatch,
    apply,
    collect,
    errors,
    load_from,
    save_into,
)

torch = pytest.importorskip("torch")
nn = torch.nn


def saved(module, kind=SafetensorsStore):
    store = kind.from_bytes(None)
    store.collect_from(module)
    return kind.from_bytes(store.get_bytes())


# ---- the result ------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_result():
    source = {"a": np.ones(2), "b": np.ones(3), "extra": np.ones(1), "filtered": np.ones(1)}
    target = {"filtered": np.zeros(1), "z": np.zeros(1), "b": np.zeros(2), "a": np.zeros(2), "m": np.zeros(1)}
    result = apply(target, collect(source), PathFilter().with_regex("^[abmz]"))
    assert result.applied == ["a"]
    assert result.skipped == ["filtered"]
    assert result.missing == ["m", "z"]
    assert result.unused == ["extra"]
    ((path, error),) = result.errors
    assert path == "b"
    assert isinstance(error, ShapeMismatch)
    assert (error.path, error.expected, error.found) == ("b", (2,), (3,))
    assert str(error) == "shape [3] was found where [2] is expected"
    assert not result.is_success()
    assert target["a"].tolist() == [1, 1]
    assert target["b"].tolist() == [0, 0]
    assert target["filtered"].tolist() == [0]


def test_a_parameter_that_is_filtered_and_absent_is_missing():
    result = apply({"a": np.zeros(1)}, [], PathFilter.none())
    assert (result.missing, result.skipped) == (["a"], [])


def test_missing_parameters_know_their_container():
    result = apply(nn.Sequential(nn.Linear(1, 1)), [])
    (bias, weight) = result.missing
    assert (bias, bias.container) == ("0.bias", "Sequential.Linear")
    assert isinstance(weight, str)
    assert "Linear" in result.summary()
    again = pickle.loads(pickle.dumps(result))
    assert again.missing[0].container == "Sequential.Linear"
    assert copy.deepcopy(result).missing == result.missing


def test_the_summary():
    result = ApplyResult(
        applied=["x"],
        missing=[MissingTensor(f"layer{i:02}.weight", "Net") for i in range(12)],
        unused=["layers00.weight", *(f"other{i}" for i in range(13))],
        errors=[ShapeMismatch("y", (1,), (2,), "shape [2] was found where [1] is expected")],
    )
    text = str(result)
    assert text.startswith("1 applied, 0 skipped, 12 missing, 14 unused, 1 errors")
    assert "layer00.weight (in Net); did you mean 'layers00.weight'?" in text
    assert "layer09.weight" in text
    assert "layer10.weight" not in text
    assert "... and 2 more" in text
    assert "... and 4 more" in text
    assert "y: shape [2] was found where [1] is expected" in text
    assert "CamelCase" not in text


def test_hints_about_enum_variants():
    result = apply({"feature": {"BaseConv": {"weight": np.zeros(1)}}}, collect({"feature.weight": np.ones(1)}))
    assert result.did_you_mean(result.missing[0]) == "feature.weight"
    assert "skip_enum_variants(True)" in str(result)
    result = apply({"feature": {"weight": np.zeros(1)}}, collect({"feature.BaseConv.weight": np.ones(1)}))
    assert result.did_you_mean("feature.weight") == "feature.BaseConv.weight"
    assert "skip_enum_variants(True)" in str(result)


def test_suggestions_among_very_many():
    unused = [f"block.{i}.w{i % 7}" for i in range(5000)] + ["head.wieght", "haed.weight"]
    result = ApplyResult(missing=[MissingTensor("head.weight", "")], unused=unused)
    assert result.did_you_mean("head.weight") == "haed.weight"
    assert ApplyResult(unused=["zzz"]).did_you_mean("head.weight") is None


# ---- strictness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("wrong", [True, False])
@pytest.mark.parametrize("missing", [True, False])
def test_validate_and_allow_partial(kind, validate, partial, wrong, missing):
    source = {"a": np.ones(2), "b": np.ones(3 if wrong else 2)} | ({} if missing else {"c": np.ones(2)})
    target = {name: np.zeros(2) for name in "abc"}
    store = saved(source, kind).validate(validate).allow_partial(partial)
    refused = (wrong and validate) or (missing and not partial)
    if not refused:
        result = store.apply_to(target)
        assert result.is_success() == (not wrong)
        assert result.missing == (["c"] if missing else [])
        assert target["a"].tolist() == [1, 1]
        assert target["b"].tolist() == ([0, 0] if wrong else [1, 1])
        return
    kind_of_error = errors.ValidationError if wrong and validate else errors.TensorNotFound
    with pytest.raises(kind_of_error) as caught:
        store.apply_to(target)
    assert isinstance(caught.value, errors.BurnpackError if kind is BurnpackStore else errors.SafetensorsError)
    assert isinstance(caught.value, ValueError if wrong and validate else KeyError)
    assert caught.value.result.applied == []
    assert len(caught.value.result.errors) == wrong
    assert "left as it was" in str(caught.value)
    assert all(array.tolist() == [0, 0] for array in target.values())
    assert pickle.loads(pickle.dumps(caught.value)).result.missing == caught.value.result.missing


def test_a_strict_load_with_a_filter_says_why_it_fails():
    with pytest.raises(errors.TensorNotFound, match="a filter does not make them optional"):
        saved({"a": np.ones(1)}).with_regex("^a$").apply_to({"a": np.zeros(1), "b": np.zeros(1)})


def test_free_apply_never_raises_for_what_does_not_fit():
    target = {"a": np.zeros(2), "b": np.zeros(2)}
    result = apply(target, collect({"a": np.ones(3), "c": np.ones(1)}))
    assert (len(result.errors), result.missing, result.unused) == (1, ["b"], ["c"])


# ---- types -----------------------------------------------------------------------------------------------------------


def test_values_are_cast_by_default():
    target = {"a": np.zeros(2, "f2"), "b": torch.zeros(2, dtype=torch.bfloat16), "c": np.zeros(2, "f8")}
    addresses = target["b"].data_ptr()
    result = saved({name: np.array([1.5, 2]).astype("f4") for name in "abc"}).apply_to(target)
    assert result.applied == ["a", "b", "c"]
    assert [target[name].dtype for name in "abc"] == [np.float16, torch.bfloat16, np.float64]
    assert [target[name].tolist() for name in "abc"] == [[1.5, 2]] * 3
    assert target["b"].data_ptr() == addresses


def test_strict_types_are_an_error():
    layer = nn.Linear(2, 2)
    store = saved(nn.Linear(2, 2).half()).dtype_policy("strict")
    before = layer.weight.clone()
    with pytest.raises(errors.ValidationError, match="type F16 was found where F32 is expected") as caught:
        store.apply_to(layer)
    error = caught.value.result.errors[0]
    assert isinstance(error, weightstore.DTypeMismatch)
    assert (error.expected, error.found) == ("F32", "F16")
    assert torch.equal(layer.weight, before)
    store.apply_to(layer.half())


@pytest.mark.parametrize("kind", [BurnpackStore, SafetensorsStore])
def test_types_can_be_adopted(kind):
    source, target = nn.Linear(2, 2).half(), nn.Linear(2, 2)
    target.weight.grad = torch.ones(2, 2)
    parameter = target.weight
    saved(source, kind).dtype_policy("adopt").apply_to(target)
    assert target.weight is parameter
    assert target.weight.dtype == torch.float16
    assert target.weight.grad is None
    assert torch.equal(target.weight, source.weight)
    arrays = {"weight": np.zeros((2, 2)), "bias": np.zeros(2)}
    saved(source, kind).dtype_policy("adopt").apply_to(arrays)
    assert arrays["weight"].dtype == np.float16


def test_what_cannot_be_cast():
    with pytest.raises(errors.ValidationError, match="complex"):
        saved({"a": np.zeros(2, "c8")}).apply_to({"a": np.zeros(2)})
    layer = nn.Linear(1, 1, bias=False)
    with pytest.raises(errors.ValidationError, match="a trained parameter cannot be I32"):
        saved({"weight": np.zeros((1, 1), "i4")}).dtype_policy("adopt").apply_to(layer)
    with pytest.raises(errors.InvalidArgument, match="'cast', 'strict' or 'adopt'"):
        SafetensorsStore.from_bytes(None).dtype_policy("whatever")


def test_booleans_of_every_encoding(write_raw):
    data = write_raw({"a": ("BoolU32", (3,), np.array([0, 1, 7], "u4").tobytes()), "b": ("BoolU8", (1,), b"\1")}, "burnpack",
                     burn="0.21")  # fmt: skip
    for value in (lambda n: np.zeros(n, "?"), lambda n: torch.zeros(n, dtype=torch.bool)):
        target = {"a": value(3), "b": value(1)}
        BurnpackStore.from_bytes(data).dtype_policy("strict").apply_to(target)
        assert target["a"].tolist() == [False, True, True]
        assert target["b"].tolist() == [True]


# ---- places ----------------------------------------------------------------------------------------------------------


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


# ---- both phases -----------------------------------------------------------------------------------------------------


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
        BurnpackStore.from_file(path).checksums(True).apply_to(target)
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


# ---- the mixin and the free functions --------------------------------------------------------------------------------


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


# ---- against a model -------------------------------------------------------------------------------------------------

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
    result = (
        saved(values).with_filter(PathFilter.from_paths(chosen)).validate(False).allow_partial(True).apply_to(module)
    )
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "float32"])
def test_transposes_and_casts_go_into_the_memory_that_is_there(dtype):
    source, target = nn.Linear(70, 30), nn.Linear(70, 30).to(getattr(torch, dtype))
    store = BurnpackStore.from_bytes(None).with_to_adapter(weightstore.PyTorchToBurnAdapter)
    store.collect_from(source)
    addresses = [parameter.data_ptr() for parameter in target.parameters()]
    version = target.weight._version
    store.with_from_adapter(weightstore.BurnToPyTorchAdapter).apply_to(target)
    assert [parameter.data_ptr() for parameter in target.parameters()] == addresses
    assert target.weight._version > version
    assert torch.equal(target.weight, source.weight.to(target.weight.dtype))
    strided = {"weight": torch.zeros(70, 30, dtype=target.weight.dtype).t(), "bias": np.zeros(30)}
    store.with_from_adapter(weightstore.ModuleAdapter).validate(False).apply_to(strided)
    assert strided["bias"].tolist() == source.bias.double().tolist()
    result = apply(strided, [store.get_snapshot("weight").transposed()])
    assert result.applied == ["weight"]
    assert torch.equal(strided["weight"], target.weight)
