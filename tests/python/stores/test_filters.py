"""Choosing tensors of BurnpackStore and SafetensorsStore with filters, while saving and while loading."""

from __future__ import annotations

import pytest

from support.stores import NAMES, both, numbered, saved, t4
from weightstore import (
    PathFilter,
    SafetensorsStore,
    apply,
    collect,
    errors,
)


@both
def test_filters_on_load(kind):
    def load(store):
        target = t4(zero=True)
        return target, store.apply_to(target)

    target, result = load(saved(t4(), kind).with_regex("^(weight|bias)$"))
    assert (len(result.applied), result.skipped) == (2, ["nested.beta", "nested.gamma"])
    assert target["nested"]["gamma"].tolist() == [0, 0]
    _, result = load(saved(t4(), kind).with_full_path("weight").with_full_paths(["nested.gamma"]))
    assert result.applied == ["weight", "nested.gamma"]
    _, result = load(saved(t4(), kind).with_regex("^nothing").match_all())
    assert len(result.applied) == 4
    _, result = load(saved(t4(), kind).with_filter(PathFilter().with_regex("bias")))
    assert result.applied == ["bias"]
    _, result = load(saved(t4(), kind).with_predicates([lambda path, container: container == "dict.dict"]))
    assert result.applied == ["nested.gamma", "nested.beta"]
    _, result = load(saved(t4(), kind).with_regexes(["^w", "^b"]))
    assert result.applied == ["weight", "bias"]


@both
def test_filters_on_save(kind):
    store = kind.from_bytes(None).with_regex(r"^nested\.").with_full_path("bias")
    store.collect_from(t4())
    assert store.keys() == ["bias", "nested.beta", "nested.gamma"]
    store = kind.from_bytes(None).with_predicate(lambda path, container: container == "dict" and "w" in path)
    store.collect_from(t4())
    assert store.keys() == ["weight"]


@both
@pytest.mark.parametrize(
    "choose",
    [
        lambda store: store.with_regex(r"^nestd\."),
        lambda store: store.with_full_path("nested"),
        lambda store: store.with_predicate(lambda path, container: False),
        lambda store: store.with_regexes([]),
        lambda store: store.with_filter(PathFilter()),
    ],
)
def test_a_filter_that_matches_nothing_is_an_error(kind, choose, tmp_path):
    target = t4(zero=True)
    store = choose(saved(t4(), kind).allow_partial(True).validate(False))
    with pytest.raises(
        errors.InvalidArgument, match="none of the module's 4 tensors, so nothing would be loaded: .*Filter"
    ):
        store.apply_to(target)
    assert target["weight"].tolist() == [[0, 0], [0, 0]]
    path = tmp_path / "x.bin"
    with pytest.raises(errors.InvalidArgument, match="nothing would be saved.*begin with: weight, bias, nested"):
        choose(kind.from_file(path)).collect_from(t4())
    assert not path.exists()


@both
def test_the_filter_that_matches_nothing_is_named(kind):
    with pytest.raises(errors.InvalidArgument, match=r"regex '\^nestd\$' or path 'wieght'"):
        kind.from_bytes(None).with_regex("^nestd$").with_full_path("wieght").collect_from(t4())


@both
def test_an_empty_module_has_nothing_to_match(kind):
    store = kind.from_bytes(None).with_regex("x")
    store.collect_from({})
    assert store.keys() == []
    assert store.apply_to({}).applied == []


def test_collect_and_apply_may_choose_nothing():
    assert collect(t4(), PathFilter.none()) == []
    assert len(apply(t4(), collect(t4()), PathFilter.none()).skipped) == 4


@both
def test_filters_are_copied_and_do_not_touch_direct_access(kind):
    chosen = PathFilter().with_regex("^weight$")
    store = saved(t4(), kind).with_filter(chosen)
    chosen.match_all()
    assert store.apply_to(t4(zero=True)).applied == ["weight"]
    assert store.keys() == NAMES


def test_filters_of_containers_on_both_ways():
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.LayerNorm(2))
    store = SafetensorsStore.from_bytes(None).with_predicate(lambda _, container: container.split(".")[-1] == "Linear")
    store.collect_from(model)
    assert store.keys() == ["0.bias", "0.weight"]
    assert store.allow_partial(True).apply_to(model).missing == ["1.bias", "1.weight"]


@both
def test_filters_see_names_without_the_variants_that_are_passed_over(kind):
    def module():
        return {"a": {"BaseConv": numbered("w", "b")}, "heads": {"Dog": numbered("w")}}

    seen = []
    store = saved(numbered("a.w", "heads.Dog.w"), kind).skip_enum_variants(True).allow_partial(True)
    store.with_predicate(lambda path, _: seen.append(path) or path in ("a.w", "heads.Dog.w"))
    result = store.apply_to(module())
    assert seen == ["a.w", "a.b", "heads.Dog.w"]  # the file has Dog, too
    assert (result.applied, result.missing) == (["a.BaseConv.w", "heads.Dog.w"], ["a.BaseConv.b"])
    with pytest.raises(errors.InvalidArgument, match=r"sees no enum variants, so it does not match 'a\.BaseConv\.w'"):
        saved(numbered("a.w"), kind).skip_enum_variants(True).with_regex("Conv").apply_to(module())
    store = kind.from_bytes(None).skip_enum_variants(True).with_full_path("a.w")
    store.collect_from(module())
    assert store.keys() == ["a.w"]
