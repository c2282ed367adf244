"""What numpy.load reads, weightstore reads the same."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import weightstore

KINDS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
NAMES = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P"], exclude_characters="/\\"), min_size=1, max_size=8
)


def bits(array):
    """Type, shape and bytes, in this machine's order; equal for equal arrays, whatever NaNs they have."""
    native = np.ascontiguousarray(array).reshape(array.shape).astype(array.dtype.newbyteorder("="), copy=False)
    return native.dtype, native.shape, native.tobytes()


@st.composite
def any_array(draw):
    dtype = np.dtype(draw(st.sampled_from(KINDS))).newbyteorder(draw(st.sampled_from("<>")))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = draw(st.binary(min_size=count, max_size=count))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape, order=draw(st.sampled_from("CF")))


def check(file, expected):
    assert sorted(file) == sorted(expected)
    for name, array in expected.items():
        assert bits(file[name].numpy()) == bits(array)
    for name, array in file.load().items():
        assert bits(array) == bits(expected[name])


@settings(deadline=None)
@given(any_array())
def test_arrays(array):
    file = io.BytesIO()
    np.save(file, array)
    check(weightstore.open(file.getvalue()), {"arr_0": np.load(io.BytesIO(file.getvalue()))})


@settings(deadline=None)
@given(st.dictionaries(NAMES, any_array(), min_size=1, max_size=5), st.booleans())
def test_archives(named, compressed):
    file = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(file, **{f"{name}": array for name, array in named.items() if name not in ("file", "allow_pickle")}, more=1)
    with np.load(io.BytesIO(file.getvalue())) as loaded:
        check(weightstore.open(file.getvalue(), verify="full"), dict(loaded))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_versions(version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.arange(6, dtype=">i4").reshape(2, 3), version=version)
    check(weightstore.open(file.getvalue()), {"arr_0": np.arange(6, dtype="i4").reshape(2, 3)})


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_large_arrays_by_path(tmp_path, save):
    path = tmp_path / "arrays.npz"
    numbers = np.random.default_rng(1).integers(0, 9, (3, 700_001), dtype="i4")
    expected = {"c": numbers, "f": np.asfortranarray(numbers), "swapped": numbers.astype(">i4"), "zero": numbers * 0}
    save(path, **expected)
    for backend in ("mmap", "pread"):
        with weightstore.open(path, backend=backend, verify="lazy") as file:
            check(file, expected)
            assert file.format == "numpy"
            assert np.array_equal(file["f"][1:, 5:9000:7].numpy(), numbers[1:, 5:9000:7])
            assert np.array_equal(file["c"][:, 699_990:].numpy(), numbers[:, 699_990:])


def test_arrays_convert(tmp_path):
    arrays = {"a": np.arange(12, dtype="f4").reshape(3, 4, order="F"), "b": np.ones(3, ">f2")}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    for target in ("a.safetensors", "a.bpk"):
        weightstore.convert(tmp_path / "a.npz", tmp_path / target)
        with weightstore.open(tmp_path / target) as file:
            check(file, arrays)


def test_an_archive_is_only_read(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.ones(1))
    with pytest.raises(weightstore.errors.InvalidArgument, match="reads but does not write"):
        weightstore.convert(tmp_path / "a.npz", tmp_path / "b.npz")


def test_a_gigabyte_of_zeros_is_read_and_more_needs_a_limit():
    file = io.BytesIO()
    np.savez_compressed(file, zeros=np.zeros(1 << 30, "u1"))
    with weightstore.open(file.getvalue()) as opened:
        assert opened["zeros"].shape == (1 << 30,)
        assert not opened["zeros"][(1 << 30) - 10 :].numpy().any()
    limits = {"expanded_bytes": (1 << 30) - 1}
    with weightstore.open(file.getvalue(), limits=limits) as opened:
        with pytest.raises(weightstore.errors.LimitError, match="expanded_bytes"):
            opened.load()
        with pytest.raises(weightstore.errors.LimitError):
            opened["zeros"].numpy()
        assert opened["zeros"][:10].numpy().tolist() == [0] * 10
