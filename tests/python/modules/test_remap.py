"""KeyRemapper and the closing of gaps between indices."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weightstore import InvalidArgument, KeyRemapper, TensorSnapshot, map_indices_contiguous
from weightstore._modules.indices import contiguous_names


def rename(pattern, replacement, name):
    return KeyRemapper().add_pattern(pattern, replacement).rename(name)


@pytest.mark.parametrize(
    ("pattern", "replacement", "name", "expected"),
    [
        (r"^old_model\.", "new_model.", "old_model.fc.weight", "new_model.fc.weight"),
        (r"norm(\d+)", "norm_$1", "a.norm1.norm22", "a.norm_1.norm_22"),
        (r"^transformer\.h\.(\d+)\.", "transformer.layer$1.", "transformer.h.12.fc", "transformer.layer12.fc"),
        (r"^(.*?)\.attn\.", "$1.attention.", "h.0.attn.q", "h.0.attention.q"),
        (r"(?P<left>\w+)_(?P<right>\w+)", "${right}.$left", "in_out", "out.in"),
        (r"(?<left>\w+)-(?<right>\w+)", "$right-$left", "a-b", "b-a"),
        (r"(\d+)", "${1}_x", "a3", "a3_x"),
        (r"(\d+)", "$$1", "a3", "a$1"),
        (r"(\d+)", "$$$1", "a3", "a$3"),
        (r"(\d+)", "$", "a3", "a$"),
        (r"(\d+)", "$.x", "a3", "a$.x"),
        (r"(a)|(b)", "[$1$2]", "ab", "[a][b]"),
        (r"x*", "-", "abxd", "-a-b-d-"),
        (r"", "-", "ab", "-a-b-"),
        (r"nothing", "x", "a.b", "a.b"),
        (r"(\w)(\w)", "$2$01", "ab", "ba"),
        ("ü", "ue", "für.gewicht", "fuer.gewicht"),
    ],
)
def test_replacements_are_read_as_burn_store_reads_them(pattern, replacement, name, expected):
    assert rename(pattern, replacement, name) == expected


def test_rules_chain_in_order():
    remapper = KeyRemapper().add_pattern(r"^encoder\.", "transformer.encoder.").add_pattern(r"\.gamma$", ".weight")
    assert remapper.rename("encoder.layer1.gamma") == "transformer.encoder.layer1.weight"
    assert KeyRemapper().add_pattern("a", "b").add_pattern("b", "c").rename("a.b") == "c.c"
    assert KeyRemapper().add_pattern("b", "c").add_pattern("a", "b").rename("a.b") == "b.c"


def test_remap_reports_new_and_original_names():
    snapshots = [TensorSnapshot.from_value(name, np.zeros(2), containers=["Net"]) for name in ("pt.a.bias", "other")]
    snapshots[0].param_id = 7
    remapper = KeyRemapper.from_patterns([(r"^pt\.(.*)\.bias$", "burn.$1.bias_param")])
    renamed, pairs = remapper.remap(snapshots)
    assert pairs == [("burn.a.bias_param", "pt.a.bias"), ("other", "other")]
    assert [snapshot.full_path for snapshot in renamed] == ["burn.a.bias_param", "other"]
    assert (renamed[0].containers, renamed[0].param_id) == (("Net",), 7)
    assert snapshots[0].full_path == "pt.a.bias"
    assert KeyRemapper().remap(snapshots)[1] == [("pt.a.bias", "pt.a.bias"), ("other", "other")]


def test_what_it_is_made_of():
    remapper = KeyRemapper.from_patterns({"a": "b"}.items())
    ((pattern, replacement),) = remapper.to_regex_pairs()
    assert (pattern.pattern, replacement) == ("a", "b")
    assert not remapper.is_empty()
    assert KeyRemapper().is_empty()
    copy = remapper.clone().add_pattern("b", "c")
    assert (remapper.rename("a"), copy.rename("a")) == ("b", "c")
    assert "'a' -> 'b'" in repr(remapper)


def test_a_bad_rule_raises_at_once():
    remapper = KeyRemapper()
    with pytest.raises(InvalidArgument, match="not a regular expression"):
        remapper.add_pattern("(", "x")
    with pytest.raises(TypeError, match="replacement"):
        remapper.add_pattern("a", None)
    assert remapper.is_empty()


WORDS = st.text(alphabet="ab.0_", max_size=8)


@given(WORDS, st.sampled_from(["a", "b+", r"\d", "ab", r"\.", "[ab]"]), st.text(alphabet="xy.", max_size=3))
def test_against_re_sub(name, pattern, replacement):
    # Where no nothing is matched and no dollar is there, both mean the same.
    assert rename(pattern, replacement, name) == re.sub(pattern, replacement, name)


# ---- indices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["fc.0.w", "fc.2.w", "fc.4.w"], ["fc.0.w", "fc.1.w", "fc.2.w"]),
        (["encoder.0", "encoder.2", "decoder.1", "decoder.5"], ["encoder.0", "encoder.1", "decoder.0", "decoder.1"]),
        (
            ["f.layers.0.conv.0.w", "f.layers.0.conv.2.w", "f.layers.2.conv.0.w", "f.layers.2.conv.2.w"],
            ["f.layers.0.conv.0.w", "f.layers.0.conv.1.w", "f.layers.1.conv.0.w", "f.layers.1.conv.1.w"],
        ),
        (
            ["a.0.b.0.c.0", "a.0.b.0.c.2", "a.0.b.2.c.0", "a.2.b.0.c.0"],
            ["a.0.b.0.c.0", "a.0.b.0.c.1", "a.0.b.1.c.0", "a.1.b.0.c.0"],
        ),
        (["fc.0.w", "fc.1.w"], ["fc.0.w", "fc.1.w"]),
        (["fc.w", "block.3x3"], ["fc.w", "block.3x3"]),
        (["stage.1"], ["stage.0"]),
        (["x.007", "x.10"], ["x.0", "x.1"]),
        (["3", "9"], ["0", "1"]),
        (["x." + "9" * 5000], ["x." + "9" * 5000]),
    ],
)
def test_gaps_are_closed(names, expected):
    assert list(contiguous_names(names).values()) == expected
    renamed, pairs = map_indices_contiguous([TensorSnapshot.from_value(name, np.zeros(1)) for name in names])
    assert [snapshot.full_path for snapshot in renamed] == expected
    assert pairs == list(zip(expected, names, strict=True))


@given(st.sets(st.lists(st.sampled_from(["a", "b", "0", "1", "3", "7"]), min_size=1, max_size=4).map(tuple)))
def test_renumbering_keeps_names_apart_and_in_order(paths):
    names = [".".join(path) for path in paths]
    renumbered = contiguous_names(names)
    assert len(set(renumbered.values())) == len(names)
    assert contiguous_names(renumbered.values()) == {name: name for name in renumbered.values()}
    for one in names:
        for other in names:
            pairs = list(zip(one.split("."), other.split("."), strict=False))
            first = next((i for i, (x, y) in enumerate(pairs) if x != y), None)
            if first is not None and all(part.isdigit() for part in pairs[first]):
                new = [int(renumbered[name].split(".")[first]) for name in (one, other)]
                assert (new[0] < new[1]) == (int(pairs[first][0]) < int(pairs[first][1]))
