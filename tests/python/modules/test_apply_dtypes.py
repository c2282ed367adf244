"""Tensors of another type than the parameter: cast, refused, or adopted."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
from support.stores import saved
from weightstore import (
    BurnpackStore,
    SafetensorsStore,
    apply,
    errors,
)

torch = pytest.importorskip("torch")

nn = torch.nn

pytestmark = pytest.mark.usefixtures("both_ways")


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


@pytest.mark.parametrize(
    ("parameter", "taken", "refused"),
    [
        ("f4", "f2 f8", "? i1 u1 i8 u4"),
        ("i4", "i1 i8 u1 u4", "? f4 f2"),
        ("u1", "i8 u2", "? f4"),
        ("?", "u1 u4", "i1 i4 i8 u2 u8 f4"),
        ("c8", "f4 f8", "i4 ?"),
    ],
)
def test_values_of_another_kind_are_refused_unless_casting_is_asked_for(parameter, taken, refused):
    for stored in taken.split():
        target = {"a": np.zeros(2, parameter)}
        saved({"a": np.array([0, 1], stored)}).apply_to(target)
        assert target["a"].tolist() == [0, 1]
    for stored in refused.split():
        for shape in ((2,), (3,)):  # what is of the wrong kind is said to be so, whatever its shape
            target = {"a": np.zeros(shape, parameter)}
            result = saved({"a": np.array([0, 1], stored)}).validate(False).apply_to(target)
            ((path, error),) = result.errors
            assert path == "a"
            assert isinstance(error, weightstore.DTypeMismatch)
            assert "dtype_policy('cast')" in str(error)
        target = {"a": np.zeros(2, parameter)}
        saved({"a": np.array([0, 1], stored)}).dtype_policy("cast").apply_to(target)
        assert target["a"].tolist() == [0, 1]


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
