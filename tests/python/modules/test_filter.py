"""PathFilter: which tensors are meant."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightstore import InvalidArgument, PathFilter


def test_without_criteria_nothing_matches():
    for empty in (PathFilter(), PathFilter.none(), PathFilter.all().clear()):
        assert empty.is_empty()
        assert empty.criteria_count() == 0
        assert not empty.matches("encoder.weight")
        assert not empty.matches("")
        assert repr(empty) == "PathFilter.none()"


def test_all_matches_everything():
    everything = PathFilter.all()
    assert not everything.is_empty()
    assert everything.criteria_count() == 1
    assert everything.matches("anything")
    assert everything.matches("")
    assert repr(everything) == "PathFilter.all()"


def test_any_criterion_is_enough():
    chosen = (
        PathFilter()
        .with_regex(r"^encoder\.")
        .with_full_path("decoder.scale")
        .with_full_paths(["decoder.bias"])
        .with_predicate(lambda path, container: container.endswith("Linear"))
    )
    assert chosen.criteria_count() == 4
    assert chosen.matches("encoder.layer.weight")
    assert chosen.matches("decoder.scale")
    assert chosen.matches("decoder.bias")
    assert chosen.matches("head.weight", "Net.Linear")
    assert chosen.matches("head.weight", ["Net", "Linear"])
    assert not chosen.matches("head.weight", "Net.Conv2d")
    assert not chosen.matches("decoder.scale.extra")
    assert not chosen.matches("my.encoder.weight")


def test_a_regex_is_searched_not_matched():
    assert PathFilter().with_regex("coder").matches("encoder.weight")
    assert PathFilter().with_regex(re.compile("CODER", re.IGNORECASE)).matches("encoder.weight")


def test_names_of_groups_as_rust_writes_them():
    assert PathFilter().with_regex(r"(?<layer>\d+)\.weight\z").matches("fc.3.weight")
    assert not PathFilter().with_regex(r"(?<layer>\d+)\.weight\z").matches("fc.3.weights")


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?<1>x)", "*"])
def test_a_bad_regex_raises_at_once(pattern):
    chosen = PathFilter()
    with pytest.raises(InvalidArgument, match="not a regular expression") as caught:
        chosen.with_regex(pattern)
    assert isinstance(caught.value, ValueError)
    with pytest.raises(InvalidArgument):
        chosen.with_regexes(["ok", pattern])
    assert chosen.is_empty()


def test_wrong_kinds_of_arguments():
    with pytest.raises(TypeError, match="single text"):
        PathFilter().with_full_paths("encoder")
    with pytest.raises(TypeError, match="single text"):
        PathFilter().with_regexes("encoder")
    with pytest.raises(TypeError, match="predicate"):
        PathFilter().with_predicate("encoder")
    with pytest.raises(TypeError, match="text"):
        PathFilter().with_regex(3)


def test_union_and_clone_are_new_filters():
    one, other = PathFilter().with_regex("a"), PathFilter().with_full_path("b")
    union = one.or_(other)
    assert union.matches("a")
    assert union.matches("b")
    assert (one | other).criteria_count() == 2
    assert not one.matches("b")
    copy = one.clone().with_full_path("c")
    assert copy.matches("c")
    assert not one.matches("c")
    assert (one | PathFilter.all()).matches("anything")


def test_clearing_parts():
    chosen = PathFilter().with_regex("a").with_full_path("b").with_predicate(lambda path, _: path == "c")
    assert [chosen.matches(path) for path in "abc"] == [True, True, True]
    chosen.clear_regex()
    assert [chosen.matches(path) for path in "abc"] == [False, True, True]
    chosen.clear_paths()
    assert [chosen.matches(path) for path in "abc"] == [False, False, True]
    chosen.clear_predicates()
    assert chosen.is_empty()


def test_other_ways_to_make_one():
    assert PathFilter.from_regex_patterns(["^a", "z$"]).matches("xz")
    assert PathFilter.from_paths(["a.b"]).matches("a.b")
    assert PathFilter.from_predicate(lambda path, container: container == "Net").matches("x", "Net")
    assert PathFilter().with_predicates([lambda p, c: False, lambda p, c: True]).matches("x")
    assert "regex '^a'" in repr(PathFilter().with_regex("^a").with_full_path("b"))


NAMES = st.lists(st.sampled_from(["encoder", "decoder", "0", "1", "weight", "bias"]), min_size=1, max_size=4).map(
    ".".join
)


@given(
    names=st.lists(NAMES, max_size=10),
    paths=st.lists(NAMES, max_size=3),
    words=st.lists(st.sampled_from(["encoder", r"\.0\.", "^decoder", "bias$"]), max_size=3),
    everything=st.booleans(),
)
def test_against_a_model(names, paths, words, everything):
    chosen = PathFilter().with_full_paths(paths).with_regexes(words)
    if everything:
        chosen.match_all()
    for name in names:
        expected = everything or name in paths or any(re.search(word, name) for word in words)
        assert chosen.matches(name) == bool(expected)
