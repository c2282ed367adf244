"""Summaries: totals, shares, largest tensors and the tree."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import weightstore
import weightstore.numpy as wn
from weightstore import _core
from weightstore._files.sizes import format_size
from weightstore._look.summary import ALL_LEVELS


def opened(tensors: dict[str, np.ndarray], **options) -> weightstore.File:
    return weightstore.open(wn.save(tensors, **options))


NAMES = st.lists(st.text(alphabet="ab.-0129", max_size=8), unique=True, max_size=30)


@given(NAMES, st.integers(0, 5))
def test_the_tree_adds_up(names, depth):
    tensors = {name: np.zeros(i % 5, "f4") for i, name in enumerate(names)}
    summary = weightstore.summarize(opened(tensors), depth=depth, largest=3)
    assert summary.totals == (
        len(tensors),
        sum(a.size for a in tensors.values()),
        sum(a.nbytes for a in tensors.values()),
    )
    assert [t.nbytes for t in summary.largest] == sorted((a.nbytes for a in tensors.values()), reverse=True)[:3]
    found = dict.fromkeys(tensors, 0)
    for level, node in summary.tree.walk():
        assert level <= depth
        if node.is_tensor:
            found[node.path] += 1
            assert node.totals == (1, tensors[node.path].size, tensors[node.path].nbytes)
            continue
        below = [name for name in tensors if level == 0 or name.startswith(node.path + ".")]
        assert node.totals.tensors == len(below)
        assert node.totals.nbytes == sum(tensors[name].nbytes for name in below)
        if node.children:
            assert node.totals.tensors == sum(child.totals.tensors for child in node.children)
    shown = {name for name in tensors if name.count(".") + 1 <= depth}
    assert {name for name, times in found.items() if times} == shown
    assert summary.as_dict()["tree"]["tensors"] == len(tensors)


def test_numbers_in_names_count_as_numbers():
    tensors = {f"layers.{i}.w": np.zeros(1) for i in range(12)} | {"layers.a": np.zeros(1), "layers": np.zeros(2)}
    tree = weightstore.summarize(opened(tensors), depth=ALL_LEVELS).tree
    tensor, module = tree.children
    assert (tensor.is_tensor, module.is_tensor) == (True, False)
    assert [child.name for child in module.children] == [*map(str, range(12)), "a"]


def test_more_elements_than_64_bits_do_not_overflow(write_raw):
    file = weightstore.open(write_raw({"a": ("F32", [2**40, 0, 2**40], b""), "b": ("U8", [3], b"abc")}))
    assert weightstore.summarize(file).totals == (2, 3, 3)


def test_lines_are_those_that_python_would_print():
    tensors = {"a" * 130: np.zeros((2, 3), "f4"), "b": np.zeros((), "i8"), "ü\x07": np.zeros(5000, "f2")}
    reader = _core.Reader.open_buffer(wn.save(tensors))
    numbers = reader.numbers()
    lines = _core.tensor_lines(reader, numbers, lambda name: (repr(name), len(repr(name)))).decode().splitlines()
    rows = [
        (n if n.isascii() and n.isprintable() else repr(n), d, str(list(s)), format_size(size))
        for n, d, s, size in reader.describe_many(numbers)
    ]
    assert [line.split() for line in lines] == [" ".join(row).split() for row in rows]
    assert {line.index(row[1], 120) for line, row in zip(lines, rows, strict=True) if len(row[0]) < 120} == {122}
