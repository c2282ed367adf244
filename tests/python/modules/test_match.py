"""Names that differ between file and module: indices and enum variants."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weightstore._modules.match import looks_like_variant, match, names_without_variants, seen_names, without_variants


def indices(sources, targets):
    return match(sources, targets, indices=True, variants=False)


def variants(sources, targets):
    return match(sources, targets, indices=False, variants=True)


def test_nothing_to_do():
    assert indices(["a.0", "a.2"], ["a.0", "a.2"]) is None
    assert match(["a"], ["b"], indices=False, variants=False) is None


def test_a_list_with_gaps_for_one_without_and_the_other_way_round():
    gaps, plain = ["fc.0.w", "fc.2.w", "fc.4.w"], ["fc.0.w", "fc.1.w", "fc.2.w"]
    assert indices(gaps, plain) == dict(zip(plain, gaps, strict=True))
    assert indices(plain, gaps) == dict(zip(gaps, plain, strict=True))


def test_exact_names_win_where_they_find_as_much():
    assert indices(["fc.0", "fc.2", "fc.5"], ["fc.0", "fc.2", "head"]) == {"fc.0": "fc.0", "fc.2": "fc.2"}
    assert indices(["fc.0", "fc.2"], ["fc.0", "fc.1", "fc.2"]) == {"fc.0": "fc.0", "fc.2": "fc.2"}


def test_the_order_does_not_tell_which_layer_is_which():
    """Where layers may have been added, left out or shifted, only exact names count."""
    for sources, targets in [
        ([0, 1, 2, 3], [0, 2, 4]),  # more elements than the module has
        ([0, 2, 4], [0, 1]),
        ([12, 13, 14], [0, 1, 2]),  # another part of a longer list
        ([0, 1, 2], [1, 2, 3]),
        ([0, 2, 5], [0, 3, 6]),  # gaps on both sides
        ([7], [0]),
    ]:
        exact = {f"l.{i}.w": f"l.{i}.w" for i in set(sources) & set(targets)}
        assert indices([f"l.{i}.w" for i in sources], [f"l.{i}.w" for i in targets]) == exact
    # "7" and "07" are one number: there is no order.
    assert indices(["l.0.w", "l.7.w", "l.07.w"], ["l.0.w", "l.1.w", "l.2.w"]) == {"l.0.w": "l.0.w"}


def test_each_list_is_judged_by_itself():
    found = indices(["a.0", "a.3", "b.1", "b.2"], ["a.0", "a.1", "b.1", "b.2"])
    assert found == {"a.0": "a.0", "a.1": "a.3", "b.1": "b.1", "b.2": "b.2"}


def test_lists_in_lists():
    sources = ["l.0.c.0.w", "l.0.c.2.w", "l.3.c.0.w", "l.3.c.2.w"]
    targets = ["l.0.c.0.w", "l.0.c.1.w", "l.1.c.0.w", "l.1.c.1.w"]
    assert indices(sources, targets) == dict(zip(targets, sources, strict=True))


def test_variants_on_either_side():
    assert variants(["f.BaseConv.w", "g.w"], ["f.w", "g.w"]) == {"f.w": "f.BaseConv.w", "g.w": "g.w"}
    assert variants(["f.w"], ["f.BaseConv.w"]) == {"f.BaseConv.w": "f.w"}
    assert variants(["f.One.g.Two.w"], ["f.g.w"]) == {"f.g.w": "f.One.g.Two.w"}


def test_a_variant_the_module_has_stays():
    assert variants(["f.BaseConv.w", "f.w"], ["f.BaseConv.w", "x"]) == {"f.BaseConv.w": "f.BaseConv.w"}


def test_a_variant_is_never_found_for_another_variant():
    assert variants(["heads.Cat.w", "heads.Bird.w"], ["heads.Cat.w", "heads.Dog.w"]) == {"heads.Cat.w": "heads.Cat.w"}
    assert variants(["heads.Bird.w"], ["heads.Dog.w"]) == {}
    assert variants(["heads.Bird.Inner.w"], ["heads.Inner.w"]) == {}  # Inner stands where Bird stands


def test_a_place_with_several_children_is_no_enum():
    assert variants(["heads.Cat.w", "heads.Bird.w"], ["heads.w"]) == {}
    assert variants(["heads.Cat.w", "heads.Bird.b"], ["heads.w", "heads.b"]) == {}
    assert variants(["heads.w"], ["heads.Cat.w", "heads.Bird.w"]) == {}
    assert variants(["heads.Cat.w", "heads.scale"], ["heads.w", "heads.scale"]) == {"heads.scale": "heads.scale"}


def test_variants_on_both_sides_in_different_places():
    assert variants(["f.One.g.w"], ["f.g.Two.w"]) == {"f.g.Two.w": "f.One.g.w"}
    assert variants(["f.One.Two.w"], ["f.One.w"]) == {"f.One.w": "f.One.Two.w"}
    assert variants(["f.One.Two.w"], ["f.w"]) == {"f.w": "f.One.Two.w"}


def test_first_and_last_components_are_no_variants():
    assert variants(["Model.w"], ["w"]) == {}
    assert variants(["f.Weight"], ["f"]) == {}


def test_variants_and_indices_together():
    found = match(["f.Base.0.w", "f.Base.2.w"], ["f.0.w", "f.1.w"], indices=True, variants=True)
    assert found == {"f.0.w": "f.Base.0.w", "f.1.w": "f.Base.2.w"}


def test_hostile_depth_is_found_by_exact_names_only():
    deep = "a." + "Bb." * 50_000 + "w"
    assert match([deep], ["a.w"], indices=True, variants=True) == {}
    assert match([deep], ["a.w", deep], indices=True, variants=True) == {deep: deep}


def test_what_looks_like_a_variant():
    assert [name for name in ("Base", "BaseConv", "B", "BN", "base", "Bn", "0", "") if looks_like_variant(name)] == [
        "Base",
        "BaseConv",
        "Bn",
    ]
    assert without_variants("feature.BaseConv.weight") == "feature.weight"
    assert without_variants("Feature.weight") == "Feature.weight"
    assert without_variants("Feature.Conv.Weight") == "Feature.Weight"
    assert without_variants("weight") == "weight"
    assert without_variants("a.b") == "a.b"
    assert without_variants("") == ""


NAMES = st.sets(
    st.lists(st.sampled_from(["a", "Bc", "0", "1", "3"]), min_size=1, max_size=4).map(".".join), min_size=1, max_size=8
)


@given(sources=NAMES, targets=NAMES, by_index=st.booleans(), by_variant=st.booleans())
def test_whatever_is_found_is_there(sources, targets, by_index, by_variant):
    found = match(sources, targets, indices=by_index, variants=by_variant)
    if found is None:
        found = {name: name for name in sources & targets}
    assert set(found) <= targets
    assert set(found.values()) <= sources
    assert len(found) >= len(sources & targets)
    assert len(set(found.values())) == len(found)
    if not by_index:
        assert all(found[name] == name for name in sources & targets)


def test_filters_see_the_variants_that_the_source_has():
    targets = ["a.Base.w", "a.Base.b", "b.0.Conv.w", "c.w"]
    assert list(seen_names(targets, ["a.w", "c.w"], {}).values()) == ["a.w", "a.b", "b.0.w", "c.w"]
    assert list(seen_names(targets, ["a.Base.w"], {}).values()) == ["a.Base.w", "a.Base.b", "b.0.w", "c.w"]
    # Found under another number, the source has the variant all the same.
    assert seen_names(targets, ["b.2.Conv.w"], {"b.0.Conv.w": "b.2.Conv.w"})["b.0.Conv.w"] == "b.0.Conv.w"


@given(targets=NAMES, sources=NAMES)
def test_seen_names_are_between_the_whole_and_the_short_ones(targets, sources):
    short = names_without_variants(targets)
    seen = seen_names(targets, sources, {})
    assert seen.keys() == short.keys()
    for name, shown in seen.items():
        components = iter(name.split("."))
        assert all(component in components for component in shown.split("."))  # in this order
        assert len(short[name].split(".")) <= len(shown.split("."))
    assert len(set(seen.values())) == len(seen)
    assert seen_names(targets, targets, {name: name for name in targets}) == {name: name for name in targets}
