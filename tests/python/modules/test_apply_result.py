"""What a load reports, and when it is an error."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any, get_type_hints

import numpy as np
import pytest

from support.stores import saved
from weightstore import (
    ApplyError,
    ApplyResult,
    BurnpackStore,
    MissingTensor,
    PathFilter,
    SafetensorsStore,
    ShapeMismatch,
    apply,
    collect,
    errors,
)

torch = pytest.importorskip("torch")

nn = torch.nn


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


def test_type_checkers_let_errors_be_unpacked():
    # An unpacked object gives all its parts one type: that of the iterator. Only Any fits both the path and the error.
    assert get_type_hints(ApplyError.__iter__)["return"] == Iterator[Any]


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
