"""Ids of a LayerPager: anything that can be the key of a dict; and the forms of an entry."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest

import weightstore.numpy
from weightstore import LayerPager, Pager, PagerError, TensorNotFound

DATA = bytes(range(64))


@dataclass
class Range:
    offset: int
    size: int


class Pair(NamedTuple):
    offset: int
    size: int


class Layer(NamedTuple):
    number: int
    kind: str


def cut(offset, size):
    return DATA[offset : offset + size]


@pytest.mark.parametrize(
    "entry",
    [
        (4, 8),
        [4, 8],
        Pair(4, 8),
        Range(4, 8),
        {"offset": 4, "size": 8, "dtype": "F32"},
        SimpleNamespace(offset=4, size=8),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_forms_of_an_entry(entry):
    with LayerPager(DATA, {"a": entry}) as pager:
        assert pager.acquire("a").bytes() == cut(4, 8)


IDS = {
    0: (0, 4),
    7: (4, 4),
    ("layers", 0, "wq"): (8, 4),
    Layer(1, "wk"): (12, 4),
    None: (16, 4),
    "0": (20, 4),
    b"x": (24, 4),
}


def test_every_method_takes_ids():
    with LayerPager(DATA, IDS, budget_bytes=16, pinned=[7]) as pager:
        assert isinstance(pager, LayerPager)
        assert repr(pager).startswith("<LayerPager of 7 tensors")
        assert pager.names() == list(pager) == pager.keys() == list(IDS)
        for id, place in IDS.items():
            assert pager.acquire(id).bytes() == cut(*place)
            assert id in pager
            assert pager.is_resident(id)
        assert [tensor.bytes() for tensor in pager.acquire_many(list(IDS))] == [cut(*place) for place in IDS.values()]
        assert pager.is_pinned(7)
        assert not pager.is_pinned(0)
        layer = Layer(1, "wk")
        pager.pin(layer)
        assert pager.is_pinned(layer)
        pager.unpin(layer)
        with pager.pinned([layer, 0]):
            assert pager.is_pinned(layer)
            assert pager.is_pinned(0)
        assert not pager.is_pinned(layer)
        pager.acquire(0)
        assert pager.evict(0)
        assert not pager.is_resident(0)
        pager.prefetch([0], wait=True)
        assert pager.is_resident(0)
        assert pager.stats(0)["misses"] >= 1
        assert pager.names()[pager.slot(layer)] == layer


def test_an_int_is_an_id_where_ids_are_ints_and_a_slot_elsewhere():
    with LayerPager(DATA, {5: (0, 1), 0: (1, 1)}) as pager:
        assert pager.acquire(0).bytes() == cut(1, 1)
        with pytest.raises(TensorNotFound, match="no tensor among 2 has the id 1"):
            pager.acquire(1)
    with LayerPager(DATA, {"5": (0, 1), "0": (1, 1)}) as pager:
        assert pager.acquire(0).bytes() == cut(0, 1)


def test_entries_in_another_order_than_their_offsets():
    ids = {3: (30, 2), "b": (10, 2), (1, 2): (20, 2)}
    with LayerPager(DATA, ids, pinned=[(1, 2)]) as pager:
        for id, place in ids.items():
            assert pager.acquire(id).bytes() == cut(*place)
        assert [tensor.bytes() for tensor in pager.acquire_many(ids)] == [cut(*place) for place in ids.values()]
        assert pager.is_pinned((1, 2))
        assert pager.names() == ["b", (1, 2), 3]
        assert [pager.slot(id) for id in pager.names()] == [0, 1, 2]


def test_ids_that_print_alike_are_kept_apart():
    class Odd:
        def __repr__(self):
            return "odd"

    ids = {Odd(): (0, 1), Odd(): (1, 1), "odd": (2, 1)}
    with LayerPager(DATA, ids) as pager:
        assert [pager.acquire(id).bytes() for id in ids] == [cut(0, 1), cut(1, 1), cut(2, 1)]


def test_a_subclass_has_ids_of_any_kind():
    class Mine(LayerPager):
        def __init__(self, entries):
            super().__init__(DATA, entries)

        def acquire(self, id, /, **options):
            return super().acquire(id, **options)

    assert Mine({3: (3, 1)}).acquire(3).bytes() == cut(3, 1)
    assert isinstance(Mine({3: (3, 1)}), Mine)


def test_unknown_and_impossible_ids():
    with LayerPager(DATA, IDS) as pager:
        assert "y" not in pager
        assert not pager.is_resident("y")
        assert not pager.is_pinned("y")
        for call in (pager.acquire, pager.pin, pager.unpin, pager.evict, pager.slot, pager.stats):
            with pytest.raises(TensorNotFound, match="has the id 'y'") as caught:
                call("y")
            assert isinstance(caught.value, PagerError)
        with pytest.raises(TypeError, match="unlike a list"):
            pager.acquire([])
        with pytest.raises(TensorNotFound, match="'99'"):
            LayerPager(DATA, IDS, pinned=[99])


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (5, "must map 'a' to \\(offset, size\\)"),
        ((1, 2, 3), "must map 'a' to"),
        ({"offset": 1}, "must map 'a' to"),
        (("x", 1), "numbers of bytes, not 'x'"),
        ((0.5, 1), "numbers of bytes, not 0.5"),
    ],
)
def test_entries_that_are_none(entry, text):
    with pytest.raises(TypeError, match=text):
        LayerPager(DATA, {"a": entry})


@pytest.mark.parametrize("source", [3, None, [1], object()], ids=repr)
def test_sources_that_are_none(source):
    with pytest.raises(TypeError, match="cannot page .*give a path"):
        LayerPager(source, {"a": (0, 1)})
    with pytest.raises(TypeError, match="cannot page .*give a path"):
        Pager(source)


def test_a_pager_is_iterated_by_name(tmp_path):
    import numpy as np

    weightstore.numpy.save_file({"b": np.ones(2), "a": np.ones(3)}, tmp_path / "m.bpk")
    with Pager(tmp_path / "m.bpk", budget=400e6) as pager:
        assert sorted(pager) == sorted(pager.keys()) == ["a", "b"]
        assert "a" in pager
        assert pager.budget_bytes == 400_000_000
        with pytest.raises(TypeError, match="whole number of bytes"):
            pager.set_budget(1.5)
