"""The pager's objects in Python: acquire() reads pybind11's own struct, so that a hit is fast."""

import gc

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import LayerPager, Pager

DATA = bytes(range(100))
ENTRIES = {"a": (0, 10), "b": (10, 90)}


def test_acquire_finds_the_pager_of_its_object():
    pagers = [LayerPager(DATA, {"t": (i, 1)}) for i in range(10)]
    for _ in range(2):  # a miss goes through pybind11, a hit does not
        assert [pager.acquire("t").bytes() for pager in pagers] == [bytes([i]) for i in range(10)]
    assert all(pager.stats()["hits"] == 1 for pager in pagers)


def test_acquire_finds_the_pager_of_a_subclass():
    class Named:
        __slots__ = ()

    class Mine(Named, LayerPager):
        def __init__(self):
            self.before = 1
            super().__init__(DATA, ENTRIES)
            self.after = 2

    pager = Mine()
    for _ in range(2):
        assert pager.acquire("a").bytes() == DATA[:10]
    assert pager.acquire("a").pager is pager


def test_a_pager_without_init_is_an_error():
    class Forgetful(Pager):
        def __init__(self):
            pass

    with pytest.raises(TypeError):
        Forgetful()
    raw = Pager.__new__(Pager)
    with pytest.raises(TypeError, match="__init__"):
        raw.acquire("a")
    gc.collect()


def test_the_collector_finds_what_a_pager_keeps():
    class Source:
        def __init__(self):
            self.pager = LayerPager(self.read, ENTRIES)

        def read(self, offset, size):
            return DATA[offset : offset + size]

    source = Source()
    assert source.pager.acquire("a").bytes() == DATA[:10]
    kept = gc.get_referents(source.pager)
    assert any(getattr(found, "__self__", None) is source for found in kept)


def test_wrong_arguments_are_explained(tmp_path):
    """No message shows the signatures of the C++ functions."""
    path = tmp_path / "raw"
    path.write_bytes(DATA)
    weights = tmp_path / "w.safetensors"
    weightstore.numpy.save_file({"a": np.arange(3)}, weights)
    pager = LayerPager(DATA, ENTRIES)
    invalid, wrong_type = weightstore.InvalidArgument, TypeError
    for expected, text, call in [
        (wrong_type, "budget must be a whole number of bytes.*400000000.5", lambda: Pager(weights, budget=400000000.5)),
        (wrong_type, "budget must be", lambda: pager.set_budget([1])),
        (invalid, "budget must be.*-1", lambda: pager.set_budget(-1)),
        (invalid, "budget must be", lambda: pager.set_budget(2**64)),
        (wrong_type, "readers must be.*2.5", lambda: Pager(weights, readers=2.5)),
        (wrong_type, "readers must be.*'2'", lambda: Pager(weights, readers="2")),
        (invalid, "from 1 to 64, not 65", lambda: Pager(weights, readers=65)),
        (wrong_type, r"write \['a'\]", lambda: Pager(weights, pinned="a")),
        (wrong_type, "pinned must be a list", lambda: Pager(weights, pinned=3)),
        (wrong_type, "pinned must hold names or slots", lambda: Pager(weights, pinned=[1.5])),
        (weightstore.TensorNotFound, "cannot pin slot -1", lambda: Pager(weights, pinned=[-1])),
        (weightstore.TensorNotFound, "cannot pin slot 7", lambda: Pager(weights, pinned=[7])),
        (wrong_type, "pinned must hold names", lambda: LayerPager(DATA, ENTRIES, None, [0])),
        (wrong_type, "tensor_map must map ids", lambda: LayerPager(DATA, [("a", 0, 1)])),
        (wrong_type, r"map 'a' to \(offset, size\)", lambda: LayerPager(DATA, {"a": 3})),
        (wrong_type, r"map 'a' to \(offset, size\)", lambda: LayerPager(DATA, {"a": (3,)})),
        (wrong_type, "offset and size of 'a'", lambda: LayerPager(DATA, {"a": (0.0, 1)})),
        (invalid, "offset and size of 'a'", lambda: LayerPager(DATA, {"a": (-1, 1)})),
        (invalid, "offset and size of 'a'", lambda: LayerPager(DATA, {"a": (0, 2**64)})),
        (wrong_type, "timeout must be a number of seconds", lambda: pager.acquire("a", timeout="soon")),
        (ValueError, "timeout must be a number of seconds", lambda: pager.acquire("a", timeout=float("nan"))),
        (wrong_type, "acquire.. takes one name or slot", lambda: pager.acquire()),
        (wrong_type, "acquire.. takes one name or slot", lambda: pager.acquire("a", "b")),
        (wrong_type, "acquire.. takes one name or slot", lambda: pager.acquire("a", wait=1)),
        (wrong_type, "name or the slot of a tensor", lambda: pager.acquire(1.5)),
        (wrong_type, "name or the slot of a tensor", lambda: pager.acquire_many([None])),
        (wrong_type, "ids must be a list", lambda: pager.acquire_many(1)),
        (wrong_type, "timeout", lambda: pager.acquire_many(["a"], timeout="soon")),
        (wrong_type, "ids must be a list", lambda: pager.prefetch("a")),
        (wrong_type, "name or the slot", lambda: pager.describe(1.5)),
        (wrong_type, "missing", lambda: pager.evict()),
        (wrong_type, "missing", lambda: pager.pin()),
    ]:
        with pytest.raises(expected, match=text) as caught:
            call()
        assert "incompatible" not in str(caught.value)
        assert "_core" not in str(caught.value)
