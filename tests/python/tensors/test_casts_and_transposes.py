"""Casts and transposes of the core, against torch and numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weightstore import StoreError, _core
from weightstore._tensors import dtypes

FLOATS = ("F16", "BF16", "F32", "F64")
WORDS = {"F16": np.uint16, "BF16": np.uint16, "F32": np.uint32, "F64": np.uint64}
ITEMS = {"U8": np.uint8, "U16": np.uint16, "F32": np.uint32, "I64": np.uint64}


def cast(data: object, from_dtype: str, to_dtype: str) -> _core.Memory:
    return _core.Producer.buffer(data).cast(from_dtype, to_dtype).read()


def transpose(data: object, dtype: str, rows: int, columns: int) -> _core.Memory:
    return _core.Producer.buffer(data).transpose(dtype, rows, columns).read()


def patterns(dtype: str) -> np.ndarray:
    """Bits at which something happens: all of 16, and of more the borders, ties and neighbours of ties of smaller types."""
    if WORDS[dtype] is np.uint16:
        return np.arange(65536, dtype=np.uint16)
    random = np.random.default_rng(7)
    # Every F16 and BF16 number and the middle to its neighbour, a little below and above.
    halves = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):  # signaling NaNs are among them
        wide = halves.view(np.float16).astype(np.float32).view(np.uint32)
    borders = np.concatenate(
        [base + step for base in (wide, halves.astype(np.uint32) << 16) for step in (0, 1 << 12, 1 << 15, 3 << 12)]
    )
    words = np.concatenate([borders, borders - 1, borders + 1, random.integers(0, 2**32, 200_000, dtype=np.uint32)])
    if dtype == "F32":
        return words
    with np.errstate(invalid="ignore"):
        wide = words.view(np.float32).astype(np.float64).view(np.uint64)
    return np.concatenate([wide, wide + 1, wide - 1, random.integers(0, 2**64, 200_000, dtype=np.uint64)])


@pytest.mark.parametrize("to_dtype", FLOATS)
@pytest.mark.parametrize("from_dtype", FLOATS)
def test_casts_are_torchs(from_dtype: str, to_dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kinds = {"F16": torch.float16, "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64}
    words = patterns(from_dtype)
    signed = torch.from_numpy(words.view(f"i{words.itemsize}"))
    converted = signed.view(kinds[from_dtype]).to(kinds[to_dtype])
    nan = converted.isnan().numpy()
    expected = converted.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[converted.element_size()]).numpy()

    memory = cast(words, from_dtype, to_dtype)
    assert not memory.readonly
    found = np.frombuffer(memory, WORDS[to_dtype])
    np.testing.assert_array_equal(found[~nan], expected.view(WORDS[to_dtype])[~nan])
    if to_dtype == "BF16" and from_dtype != "BF16":
        # torch makes 0x7fc0 or 0xffff of them, as its vectors happen to fall; ours keep their signs.
        assert ((found[nan] & 0x7FC0) == 0x7FC0).all()
        np.testing.assert_array_equal(found[nan] >> 15, words[nan] >> (8 * words.itemsize - 1))
    else:
        np.testing.assert_array_equal(found[nan], expected.view(WORDS[to_dtype])[nan])


@given(st.lists(st.floats(width=32), max_size=100))
def test_casts_of_any_floats_are_numpys(values: list[float]) -> None:
    floats = np.array(values, np.float32)
    with np.errstate(over="ignore", under="ignore"):
        expected = floats.astype(np.float16)
    found = np.frombuffer(cast(floats, "F32", "F16"), np.float16)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@settings(deadline=None)
@given(st.sampled_from(sorted(ITEMS)), st.integers(0, 300), st.integers(0, 300), st.integers(0, 99))
def test_transposes_are_numpys(dtype: str, rows: int, columns: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, np.iinfo(ITEMS[dtype]).max, (rows, columns), ITEMS[dtype])
    found = np.frombuffer(transpose(matrix, dtype, rows, columns), ITEMS[dtype])
    np.testing.assert_array_equal(found.reshape(columns, rows), matrix.T)


def test_a_matrix_for_many_threads() -> None:
    matrix = np.arange(3001 * 2003, dtype=np.float32).reshape(3001, 2003)
    memory = transpose(matrix, "F32", 3001, 2003)
    np.testing.assert_array_equal(np.frombuffer(memory, np.float32).reshape(2003, 3001), matrix.T)


def test_results_are_new_writable_memory() -> None:
    numbers = np.ones(10, np.float32)
    same = cast(numbers, "F32", "F32")
    view = np.frombuffer(same, np.float32)
    view[:] = 2
    assert numbers.max() == 1
    assert len(cast(b"", "F64", "F16")) == 0
    assert len(transpose(b"", "F32", 0, 7)) == 0


def test_any_contiguous_buffer_will_do() -> None:
    expected = np.array([1.5, -2], np.float16).tobytes()
    raw = np.array([1.5, -2], np.float32).tobytes()
    for data in (raw, bytearray(raw), memoryview(raw), np.frombuffer(raw, np.float32).reshape(2, 1)):
        assert bytes(cast(data, "F32", "F16")) == expected
    with pytest.raises((BufferError, ValueError)):
        cast(np.ones((4, 4), np.float32)[:, ::2], "F32", "F16")


def test_refusals_say_what_is_wrong() -> None:
    with pytest.raises(StoreError, match="cannot convert I64 to F16"):
        cast(bytes(8), "I64", "F16")
    with pytest.raises(StoreError, match="7 bytes do not make a whole number of F32"):
        cast(bytes(7), "F32", "F16")
    with pytest.raises(StoreError, match="there is no element type 'float32'"):
        cast(bytes(8), "float32", "F16")
    with pytest.raises(StoreError, match="2 x 3 elements of 4 bytes are not 20 bytes"):
        transpose(bytes(20), "F32", 2, 3)
    with pytest.raises(StoreError, match="F4 are not whole bytes"):
        transpose(bytes(6), "F4", 3, 4)
    with pytest.raises(TypeError):
        transpose(bytes(6), "U8", -2, -3)


def test_the_list_of_types_is_the_cores() -> None:
    for dtype in _core.DTYPES:
        if dtype in dtypes.CORE_FLOATS:
            assert len(cast(b"", dtype, "F32")) == 0
        else:
            with pytest.raises(StoreError):
                cast(b"", dtype, "F32")
