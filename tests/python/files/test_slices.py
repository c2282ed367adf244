"""Indexing a handle does what numpy does, on every backend."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import weightstore
import weightstore.numpy

SHAPES = st.lists(st.integers(0, 6), max_size=5).map(tuple)
INTEGERS = st.integers(-7, 7)
SLICES = st.builds(
    slice,
    st.none() | INTEGERS,
    st.none() | INTEGERS,
    st.none() | st.integers(-4, 4).filter(bool) | st.sampled_from([10**30, -(10**30)]),
)
KEYS = st.lists(st.one_of(SLICES, INTEGERS, st.just(...)), max_size=6).map(tuple) | SLICES | INTEGERS | st.just(...)


def opened(data: bytes):
    yield weightstore.open(data)
    yield weightstore.open(data, backend="pread")
    yield weightstore.open(io.BytesIO(data))


def result(indexed, key):
    """The selection, or the class of the error."""
    try:
        return indexed[key]
    except IndexError:
        return IndexError


@settings(deadline=None, max_examples=500)
@example(shape=(0, 2), keys=[(Ellipsis, 1)])
@given(shape=SHAPES, keys=st.lists(KEYS, min_size=1, max_size=3))
def test_as_numpy(shape, keys):
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape)
    for file in opened(weightstore.numpy.save({"t": array})):
        expected, handle = array, file["t"]
        for key in keys:
            expected, handle = result(expected, key), result(handle, key)
            if expected is IndexError or handle is IndexError:
                assert expected is handle
                break
        else:
            assert handle.shape == np.shape(expected)
            assert handle.nbytes == expected.nbytes
            np.testing.assert_array_equal(handle.numpy(), expected)
            assert handle.bytes() == expected.tobytes()


@pytest.mark.parametrize("key", [None, [0, 1], np.array([True, False]), True, 1.0, "a", (0, None)])
def test_what_is_not_basic_indexing(key):
    handle = weightstore.open(weightstore.numpy.save({"t": np.zeros((2, 2))}))["t"]
    with pytest.raises(TypeError, match="numpy"):
        handle[key]


def test_numpy_integers():
    array = np.arange(10)
    handle = weightstore.open(weightstore.numpy.save({"t": array}))["t"]
    assert handle[np.int64(3)].numpy() == 3
    np.testing.assert_array_equal(handle[np.uint8(2) : np.int32(5)].numpy(), array[2:5])


def test_pread_reads_little_more_than_it_needs():
    class Counting(io.BytesIO):
        count = 0

        def readinto(self, buffer):
            n = super().readinto(buffer)
            self.count += n
            return n

    rows = np.arange(1000 * 1000, dtype=np.float64).reshape(1000, 1000)
    stream = Counting(weightstore.numpy.save({"t": rows}))
    file = weightstore.open(stream)
    stream.count = 0
    np.testing.assert_array_equal(file["t"][500].numpy(), rows[500])
    assert stream.count < 3 * rows[500].nbytes
    stream.count = 0
    np.testing.assert_array_equal(file["t"][10:20, 5].numpy(), rows[10:20, 5])
    assert stream.count < 3 * rows[10:20].nbytes


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_elements_smaller_than_a_byte(backend, write_raw):
    file = weightstore.open(write_raw({"t": ("F4", (3, 4), bytes(range(6)))}), backend=backend)
    assert file["t"][1].bytes() == b"\2\3"
    assert file["t"][::-2].bytes() == b"\4\5\0\1"
    assert file["t"][1:, :].shape == (2, 4)
    for key in ((0, 1), (..., slice(0, 2)), (..., slice(None, None, -1))):
        with pytest.raises(ValueError, match="smaller than a byte"):
            file["t"][key]
    odd = weightstore.open(write_raw({"t": ("F4", (2, 3), b"abc")}))["t"]
    assert odd[...].bytes() == b"abc"
    with pytest.raises(ValueError, match="smaller than a byte"):
        odd[0]
