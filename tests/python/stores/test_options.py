"""Options of BurnpackStore and SafetensorsStore: choosing, renaming, metadata, and arguments that are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.stores import KINDS, NAMES, both, numbered, saved, t4
from weightstore import (
    BurnpackStore,
    KeyRemapper,
    PytorchStore,
    SafetensorsStore,
    collect,
    errors,
    map_indices_contiguous_except,
)


@both
def test_renaming_on_load(kind):
    rules = [(r"nested\.gamma", "nested.new_gamma"), (r"nested\.beta", "nested.new_beta")]
    store = saved(t4(), kind).allow_partial(True)
    for rule in rules:
        store.with_key_remapping(*rule)
    result = store.apply_to(t4(zero=True))
    assert (len(result.applied), len(result.unused), len(result.missing)) == (2, 2, 2)
    assert store.keys() == ["bias", "nested.new_beta", "nested.new_gamma", "weight"]
    store = saved(t4(), kind).allow_partial(True).with_remap_pattern(r"^nested\.", "sub_module.")
    assert store.apply_to(t4(zero=True)).unused == ["sub_module.beta", "sub_module.gamma"]
    assert saved(t4(), kind).remap(KeyRemapper().add_pattern("^", "m.")).keys()[0] == "m.bias"


@both
def test_renaming_on_save(kind):
    store = kind.from_bytes(None).with_key_remapping(r"^nested\.(\w+)", "inner_$1").with_key_remapping("inner_", "in.")
    store.collect_from(t4())
    assert kind.from_bytes(store.get_bytes()).keys() == ["bias", "in.beta", "in.gamma", "weight"]


@both
def test_collisions_name_both_sources(kind):
    for store in (saved(t4(), kind), kind.from_bytes(None)):
        store.with_key_remapping("^(nested.gamma|weight)$", "same")
        with pytest.raises(
            errors.InvalidArgument, match=r"'(nested\.gamma|weight)' and '(nested\.gamma|weight)'.*'same'"
        ):
            store.collect_from(t4()) if store._data is None else store.keys()
    store = kind.from_bytes(None).skip_enum_variants(True).with_key_remapping("[0-9]", "")
    with pytest.raises(errors.InvalidArgument, match=r"'a1\.One\.w' and 'a2\.Two\.w' would both be named 'a\.w'"):
        store.collect_from({"a1": {"One": {"w": np.zeros(1)}}, "a2": {"Two": {"w": np.zeros(1)}}})


@both
def test_saving_leaves_out_variants_and_keeps_dicts_of_modules(kind):
    module = {
        "act": {"Relu": {"Inner": {"w": np.ones(1)}}},
        "heads": {"Cat": {"w": np.full(1, 2.0)}, "Bird": {"w": np.full(1, 3.0)}},
    }
    store = kind.from_bytes(None).skip_enum_variants(True)
    store.collect_from(module)
    assert store.keys() == ["act.w", "heads.Bird.w", "heads.Cat.w"]
    for array in (module["act"]["Relu"]["Inner"], *module["heads"].values()):
        array["w"][...] = 0
    assert store.apply_to(module).missing == []
    assert [head["w"][0] for head in module["heads"].values()] == [2, 3]
    # The whole module says what an enum is, not what the filter leaves of it.
    store = kind.from_bytes(None).skip_enum_variants(True).with_regex("Cat")
    store.collect_from(module)
    assert store.keys() == ["heads.Cat.w"]


@both
def test_options_changed_after_the_file_was_read_count(kind):
    store = saved(t4(), kind)
    assert "weight" in store.keys()  # noqa: SIM118
    assert "renamed" in store.with_key_remapping("^weight$", "renamed").keys()  # noqa: SIM118


@both
def test_a_top_level_key(kind):
    store = kind.from_bytes(None).with_top_level_key("model.state")
    store.collect_from(t4())
    data = store.get_bytes()
    assert kind.from_bytes(data).keys()[0] == "model.state.bias"
    assert kind.from_bytes(data).with_top_level_key("model").keys()[0] == "state.bias"
    assert kind.from_bytes(data).with_top_level_key("model.state").apply_to(t4(zero=True)).missing == []
    assert store.keys() == NAMES
    with pytest.raises(errors.TensorNotFound, match="below 'stat'; names begin with: model"):
        kind.from_bytes(data).with_top_level_key("stat").keys()


@both
def test_indices_without_gaps(kind):
    module = {f"fc.{i}.weight": np.full(2, i) for i in (0, 2, 4)}
    plain = {f"fc.{i}.weight": np.zeros(2, "i8") for i in range(3)}
    store = saved(module, kind)
    assert store.keys() == list(module)
    with pytest.raises(errors.TensorNotFound):
        store.apply_to(plain)
    assert store.map_indices_contiguous(True).keys() == list(plain)
    assert store.apply_to(plain).missing == []
    assert plain["fc.2.weight"].tolist() == [4, 4]

    own = {name: np.zeros(2, "i8") for name in module}
    with pytest.raises(errors.TensorNotFound):
        store.apply_to(own)
    store.map_indices_contiguous("auto")
    assert store.keys() == list(module)
    for target in (own, {name: np.zeros(2, "i8") for name in plain}):
        result = store.apply_to(target)
        assert (result.missing, result.unused) == ([], [])
        assert [array[0] for array in target.values()] == [0, 2, 4]
    with pytest.raises(errors.InvalidArgument, match="True, False or 'auto'"):
        store.map_indices_contiguous("sometimes")


@both
def test_enum_variants(kind):
    with_variant = {"feature": {"BaseConv": {"weight": np.ones(2)}}, "Head": {"weight": np.ones(2)}}
    without = {"feature": {"weight": np.zeros(2)}, "Head": {"weight": np.zeros(2)}}
    store = saved(with_variant, kind)
    with pytest.raises(errors.TensorNotFound, match="skip_enum_variants"):
        store.apply_to(without)
    assert store.skip_enum_variants(True).apply_to(without).missing == []
    assert without["feature"]["weight"].tolist() == [1, 1]
    plain = kind.from_bytes(None).skip_enum_variants(True)
    plain.collect_from(with_variant)
    assert plain.keys() == ["Head.weight", "feature.weight"]
    assert plain.apply_to(with_variant).unused == []
    assert plain.skip_enum_variants(False).allow_partial(True).apply_to(with_variant).missing == [
        "feature.BaseConv.weight"
    ]


def test_metadata():
    assert saved(t4(), BurnpackStore).get_metadata() == {"format": "burnpack", "producer": "weightstore"}
    assert saved(t4(), SafetensorsStore).get_metadata() == {"format": "pt", "producer": "weightstore"}


@both
def test_metadata_is_added_overridden_and_cleared(kind):
    store = kind.from_bytes(None).metadata("version", "1.0").metadata("producer", "me").metadata("producer", "you")
    store.collect_from(t4())
    assert store.get_metadata()["version"] == "1.0"
    assert store.get_metadata()["producer"] == "you"
    assert "format" in store.get_metadata()
    store.clear_metadata().collect_from(t4())
    assert store.get_metadata() == {}
    store.clear_metadata().metadata("a", "").metadata("", "b").collect_from(t4())
    assert store.get_metadata() == {"a": "", "": "b"}
    with pytest.raises(TypeError, match="str to str"):
        store.metadata("epoch", 3)


def test_scalars():
    store = BurnpackStore.from_bytes(None).scalar("step", 42).scalar("rate", 0.001).scalar("done", True).scalar("o", -3)
    store.collect_from(t4())
    assert store.get_scalars() == {"step": 42, "rate": 0.001, "done": True, "o": -3}
    assert store.get_scalars()["done"] is True
    assert saved(t4(), BurnpackStore).get_scalars() == {}
    with pytest.raises(TypeError, match="scalar"):
        store.scalar("name", "text")
    assert not hasattr(SafetensorsStore, "scalar")
    with pytest.raises(errors.BurnpackError, match="64 bits"):
        BurnpackStore.from_bytes(None).scalar("x", 1 << 70).collect_from({})


@pytest.mark.parametrize("kind", [*KINDS, PytorchStore])
def test_wrong_arguments_raise_at_once(kind):
    store = kind.from_bytes(b"")
    place = {BurnpackStore: errors.BurnpackError, SafetensorsStore: errors.SafetensorsError}.get(
        kind, errors.PytorchError
    )
    for call in (
        lambda: store.with_regex("("),
        lambda: store.with_regexes(["("]),
        lambda: store.with_key_remapping("(", ""),
        lambda: store.dtype_policy("no"),
        lambda: store.map_indices_contiguous("no"),
    ):
        with pytest.raises(errors.InvalidArgument) as caught:
            call()
        assert isinstance(caught.value, place)
        assert isinstance(caught.value, ValueError)
    for call in (
        lambda: store.with_filter("x"),
        lambda: store.remap("x"),
        lambda: store.with_from_adapter("x"),
        lambda: store.with_top_level_key(3),
        lambda: kind.from_file(b"bytes"),
        lambda: kind.from_file(3),
        lambda: kind.from_bytes("path"),
        lambda: kind.from_bytes(Path("path")),
    ):
        with pytest.raises(TypeError):
            call()


# ---- strictness --------------------------------------------------------------------------------------------------------


@both
def test_unused_tensors_can_be_refused(kind):
    target = {"weight": np.zeros((2, 2), "f4"), "bias": np.zeros(2, "f4")}
    strict = saved(t4(), kind).allow_unused(False)
    with pytest.raises(
        errors.ValidationError, match=r"no parameter takes these tensors.*\n.*\n  nested\.beta"
    ) as caught:
        strict.apply_to(target)
    assert caught.value.result.unused == ["nested.beta", "nested.gamma"]
    assert target["bias"].tolist() == [0, 0]
    assert strict.allow_unused(True).apply_to(target).unused == ["nested.beta", "nested.gamma"]
    assert saved(t4(), kind).allow_unused(False).apply_to(t4(zero=True)).unused == []


@both
def test_what_a_filter_leaves_out_is_not_unused(kind):
    result = saved(t4(), kind).allow_unused(False).with_full_path("bias").apply_to(t4(zero=True))
    assert result.applied == ["bias"]


@both
def test_a_filter_can_make_missing_parameters_optional(kind):
    target = {**t4(zero=True), "new": {"a": np.zeros(1), "b": np.zeros(1)}}
    store = saved(t4(), kind).with_regex("^(weight|bias)$")
    with pytest.raises(errors.TensorNotFound, match="filter_missing"):
        store.apply_to(target)
    result = store.filter_missing(True).apply_to(target)
    assert (result.applied, result.missing) == (["weight", "bias"], [])
    assert result.skipped == ["nested.beta", "nested.gamma", "new.a", "new.b"]
    with pytest.raises(errors.TensorNotFound) as caught:
        store.with_full_path("new.a").apply_to(target)
    assert caught.value.result.missing == ["new.a"]


@both
def test_a_tensor_may_have_an_empty_name(kind):
    target = {"": np.zeros(2)}
    assert saved({"": np.ones(2)}, kind).apply_to(target).applied == [""]
    assert target[""].tolist() == [1, 1]


# ---- lists that keep their numbers -------------------------------------------------------------------------------------


FLOWS = ("flows.0.in.1.w", "flows.0.in.3.w", "flows.2.in.0.w", "fc.0.w", "fc.2.w")


@both
def test_lists_keep_their_numbers(kind):
    def keys(*patterns):
        store = saved(numbered(*FLOWS), kind).map_indices_contiguous(True)
        for pattern in patterns:
            store.map_indices_contiguous_except(pattern)
        return store.keys()

    assert keys() == ["fc.0.w", "fc.1.w", "flows.0.in.0.w", "flows.0.in.1.w", "flows.1.in.0.w"]
    assert keys("^flows$") == ["fc.0.w", "fc.1.w", "flows.0.in.0.w", "flows.0.in.1.w", "flows.2.in.0.w"]
    assert keys(r"^flows\.0\.in$") == ["fc.0.w", "fc.1.w", "flows.0.in.1.w", "flows.0.in.3.w", "flows.1.in.0.w"]
    assert keys("flows", "fc") == sorted(FLOWS)
    assert keys(r"^fc\.") == keys()  # a prefix has no dot at its end
    with pytest.raises(errors.InvalidArgument):
        keys("(")


def test_lists_that_are_matched_in_order_can_keep_their_numbers():
    store = saved(numbered("fc.0.w", "fc.2.w")).map_indices_contiguous("auto").allow_partial(True)
    assert store.apply_to(numbered("fc.0.w", "fc.1.w")).missing == []
    store.map_indices_contiguous_except("^fc$")
    assert store.apply_to(numbered("fc.0.w", "fc.1.w")).missing == ["fc.1.w"]


def test_the_function_asks_a_predicate():
    asked = []

    def keep(prefix):
        asked.append(prefix)
        return prefix == "flows"

    snapshots = collect({name: np.zeros(1) for name in FLOWS})
    renamed, pairs = map_indices_contiguous_except(snapshots, keep)
    assert [s.full_path for s in renamed] == [
        "flows.0.in.0.w", "flows.0.in.1.w", "flows.2.in.0.w", "fc.0.w", "fc.1.w"
    ]  # fmt: skip
    assert pairs[0] == ("flows.0.in.0.w", "flows.0.in.1.w")
    assert sorted(asked) == ["fc", "flows", "flows.0.in", "flows.2.in"]
