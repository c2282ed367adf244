"""Raw sources beyond bytes and callables, and what a handle and `pinned=` can do."""

from __future__ import annotations

import copy

import pytest

from weightstore import InvalidArgument, LayerPager, OffloadEof, Pager, TensorNotFound
from weightstore.numpy import save_file

DATA = bytes(i % 251 for i in range(100_000))


class Source:
    def __init__(self, size=None):
        self._size = len(DATA) if size is None else size

    def read_bytes_at(self, offset, out):
        out[:] = DATA[offset : offset + len(out)]

    def total_size_bytes(self):
        return self._size


def test_an_object_with_the_methods_of_a_source():
    pager = LayerPager(Source(), {"a": (10, 20), "b": (50_000, 50_000)})
    assert pager.acquire("a").bytes() == DATA[10:30]
    assert pager.acquire("b").bytes() == DATA[50_000:]
    with pytest.raises(OffloadEof) as error:
        LayerPager(Source(), {"a": (0, 10), "beyond": (99_999, 2)})
    assert (error.value.needed, error.value.available) == (2, 1)
    with pytest.raises(OffloadEof):
        LayerPager(Source(), {"nothing": (100_001, 0)})
    with pytest.raises(TypeError, match="total_size_bytes"):
        LayerPager(Source("large"), {"a": (0, 1)})


def test_errors_of_such_an_object_reach_the_caller():
    class Broken(Source):
        def read_bytes_at(self, offset, out):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        LayerPager(Broken(), {"a": (0, 1)}).acquire("a")


def test_a_mapped_file_gives_views(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(DATA)
    pager = LayerPager(path, {"a": (0, 40_960), "b": (40_960, 40_960)}, 50_000, mapped=True)
    for _ in range(3):
        assert pager.acquire("a").bytes() == DATA[:40_960]
        assert pager.acquire("b").bytes() == DATA[40_960:81_920]
    assert pager.stats()["evictions"] == 5
    assert pager.live_bytes == 40_960
    with pytest.raises(InvalidArgument, match="path"):
        LayerPager(DATA, {"a": (0, 1)}, mapped=True)


def test_a_callable_has_no_size():
    pager = LayerPager(lambda offset, size: DATA[offset : offset + size], {"beyond": (99_999, 2), "empty": (2**40, 0)})
    with pytest.raises(OffloadEof):
        pager.acquire("beyond")
    assert pager.acquire("empty").bytes() == b""


@pytest.mark.parametrize("clone", [copy.copy, lambda handle: handle.clone()])
def test_handles_can_be_cloned(clone):
    pager = LayerPager(lambda offset, size: DATA[offset : offset + size], {"a": (0, 100), "b": (100, 100)}, 100)
    first = pager.acquire("a")
    second = clone(first)
    first.release()
    pager.acquire("b").release()
    assert pager.live_bytes == 200
    assert second.bytes() == DATA[:100]
    assert (second.name, type(second)) == ("a", type(first))
    second.release()
    assert pager.live_bytes == 100
    assert clone(second).released


NAMES = [
    "model.embed_tokens.weight",
    "wte.weight",
    *(f"model.layers.{i}.{part}.weight" for i in range(12) for part in ("attn", "mlp.experts.0", "mlp.experts.1")),
    "model.norm.weight",
    "lm_head.weight",
    "classifier.bias",
]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("embeddings", NAMES[:2]),
        ("head", ["lm_head.weight", "classifier.bias"]),
        ("last:2", [name for name in NAMES if ".10." in name or ".11." in name]),
        ("*.attn.weight", [name for name in NAMES if "attn" in name]),
        ("model.norm.weight", ["model.norm.weight"]),
    ],
)
def test_pins_by_role_and_pattern(tmp_path, entry, expected):
    import numpy as np

    save_file({name: np.zeros(4, np.float32) for name in NAMES}, tmp_path / "m.safetensors")
    pagers = [
        Pager(tmp_path / "m.safetensors", pinned=[entry]),
        LayerPager(DATA, {name: (8 * i, 8) for i, name in enumerate(NAMES)}, pinned=[entry]),
    ]
    for pager in pagers:
        assert sorted(name for name in pager.names() if pager.is_pinned(name)) == sorted(expected)


@pytest.mark.parametrize("entry", ["head", "last:3", "encoder.*", "missing"])
def test_roles_that_nothing_has(entry):
    with pytest.raises(TensorNotFound, match=r"encoder|head|last|missing"):
        LayerPager(DATA, {"weight": (0, 8)}, pinned=[entry])


def test_automatic_budgets_follow_until_they_are_set():
    pager = LayerPager(DATA, {"a": (0, 8)}, "auto")
    assert pager.budget_bytes is None or pager.budget_bytes > 0
    pager.set_budget(100)
    for _ in range(3):
        pager.acquire("a").release()
    assert pager.budget_bytes == 100
