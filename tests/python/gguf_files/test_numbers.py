"""The numbers of quantized tensors, bit for bit as the gguf package computes them."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weightstore
from support.gguf_files import CARRIED, DEQUANTIZED, TYPE, file, random_blocks, tensor, write


def opened(kind, rows):
    shape = gguf.quant_shape_from_byte_shape(rows.shape, kind)
    return weightstore.open(file((), [tensor("w", shape[::-1], kind, 0)], rows.tobytes()))["w"]


def reference(rows, kind):
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(rows, kind)


def assert_same(found, expected):
    """Bit for bit. Only in a cast may a NaN get another sign and payload."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    if found.dtype == np.float32:
        np.testing.assert_array_equal(np.ascontiguousarray(found).view("u4"), np.ascontiguousarray(expected).view("u4"))
        return
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    bits = f"u{found.itemsize}"
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(found[numbers].view(bits), expected[numbers].view(bits))


@pytest.mark.parametrize("kind", DEQUANTIZED, ids=lambda kind: kind.name)
def test_any_bytes(kind):
    for seed in range(3):
        rows = random_blocks(kind, 32, 6, seed)
        assert_same(opened(kind, rows).dequantize().numpy(), reference(rows, kind))


@pytest.mark.parametrize("kind", DEQUANTIZED, ids=lambda kind: kind.name)
def test_many_blocks_on_several_threads(kind):
    rows = random_blocks(kind, 1024, 6144 // gguf.GGML_QUANT_SIZES[kind][0])
    assert_same(opened(kind, rows).dequantize().numpy(), reference(rows, kind))


@pytest.mark.parametrize("kind", [TYPE.F32, TYPE.F16, TYPE.BF16], ids=lambda kind: kind.name)
def test_floats_are_cast(kind):
    rows = np.random.default_rng(0).integers(0, 256, (3, 64), np.uint8)
    expected = reference(rows, kind)
    shape = expected.shape
    handle = weightstore.open(file((), [tensor("w", shape[::-1], kind, 0)], rows.tobytes()))["w"]
    assert_same(handle.dequantize().numpy(), expected)
    assert_same(handle.dequantize()[1, 3:5].numpy(), expected[1, 3:5])


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(DEQUANTIZED), st.data())
def test_parts(kind, data):
    rows = random_blocks(kind, 7, 2)
    whole = reference(rows, kind)
    bounds = st.integers(-8, 8) | st.none()
    steps = st.integers(-3, 3).filter(bool) | st.none()
    chosen = data.draw(st.slices(7) | st.integers(-7, 6) | st.builds(slice, bounds, bounds, steps))
    columns = data.draw(st.slices(whole.shape[1]))
    assert_same(opened(kind, rows).dequantize()[chosen, columns].numpy(), whole[chosen, columns])


@pytest.mark.parametrize(("dtype", "numpy"), [("F16", np.float16), ("F64", np.float64), ("F32", np.float32)])
def test_other_types_are_cast_from_f32(dtype, numpy):
    rows = random_blocks(TYPE.Q6_K, 4, 3)
    with np.errstate(over="ignore"):
        expected = reference(rows, TYPE.Q6_K).astype(numpy)
    assert_same(opened(TYPE.Q6_K, rows).dequantize(dtype).numpy(), expected)


def test_bfloat16(tmp_path):
    import torch

    rows = random_blocks(TYPE.Q4_0, 4, 3)
    found = opened(TYPE.Q4_0, rows).dequantize("BF16").torch()
    expected = torch.from_numpy(reference(rows, TYPE.Q4_0)).to(torch.bfloat16)
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("kind", CARRIED, ids=lambda kind: kind.name)
def test_types_that_are_only_carried(kind, tmp_path):
    handle = opened(kind, random_blocks(kind, 2, 1))
    with pytest.raises(weightstore.StoreError, match=f"{kind.name} is not dequantized") as caught:
        handle.dequantize()
    assert caught.value.tensor == "w"


def test_rows_are_read_without_the_rest(tmp_path):
    """The rest of the file is not there: it was cut off after the header was read."""
    path = tmp_path / "m.gguf"
    rows = random_blocks(TYPE.Q4_K, 4096, 8)
    write(path, {"w": rows}, {"w": TYPE.Q4_K})
    with weightstore.open(path, backend="pread") as file:
        path.write_bytes(path.read_bytes()[: 200 + 1152 * 100])
        assert_same(file["w"].dequantize()[10:20].numpy(), reference(rows[10:20], TYPE.Q4_K))
        with pytest.raises(weightstore.StoreError):
            file["w"].dequantize()[4000:].numpy()


def test_integers_are_not_dequantized():
    handle = weightstore.open(file((), [tensor("w", [4], TYPE.I8, 0)], bytes(4)))["w"]
    with pytest.raises(weightstore.InvalidArgument, match="I8 is not quantized"):
        handle.dequantize()
    with pytest.raises(weightstore.InvalidArgument, match="burn is for tensors of Burn"):
        opened(TYPE.Q8_0, random_blocks(TYPE.Q8_0, 1, 1)).dequantize(burn="0.22")
