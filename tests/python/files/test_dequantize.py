"""Quantized tensors of Burn as numbers, against a plain reading of the format."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weightstore
from weightstore import QuantScheme, _core, errors
from weightstore import numpy as wn

BITS = {"Q8F": 8, "Q8S": 8, "Q4F": 4, "Q4S": 4, "Q2F": 2, "Q2S": 2}


def file_of(scheme: QuantScheme, shape: tuple[int, ...], payload: bytes) -> weightstore.File:
    writer = _core.Writer()
    writer.add("q", "QFloat", shape, _core.Producer.buffer(payload), None, scheme)
    writer.set_metadata({"producer": "weightstore", "burn": scheme.burn})
    return weightstore.open(writer.write_bytes("burnpack", burn=scheme.burn))


def payload_of(codes: np.ndarray, scales: np.ndarray, scheme: QuantScheme) -> bytes:
    """Integer codes and F32 scales as 0.22 stores them, element by element."""
    if scheme.store == "Native":
        return codes.astype("i1").tobytes() + scales.astype("<f4").tobytes()
    bits = BITS[scheme.value]
    codes = np.atleast_1d(codes)  # a scalar has a word of its own
    axis = codes.ndim - 1 - scheme.packed_dim
    lines = np.swapaxes(codes, axis, -1).reshape(codes.size // max(codes.shape[axis], 1), codes.shape[axis])
    words = np.zeros((len(lines), -(-lines.shape[1] * bits // 32)), "<u4")
    for i in range(lines.shape[1]):
        words[:, i * bits // 32] |= (lines[:, i] & ((1 << bits) - 1)).astype("<u4") << (i * bits % 32)
    grid = np.swapaxes(scales, axis, -1) if scheme.block else scales
    return words.tobytes() + np.ascontiguousarray(grid).astype("<f4").tobytes()


@st.composite
def quantized(draw):
    value = draw(st.sampled_from(sorted(BITS)))
    large, small = st.lists(st.integers(1, 20), max_size=3), st.lists(st.integers(0, 3), min_size=4, max_size=6)
    shape = tuple(draw(large | small))
    store = draw(st.sampled_from(["Native", "PackedU32"]))
    block = draw(st.none() | st.lists(st.integers(1, 9), min_size=1, max_size=min(len(shape), 5))) if shape else None
    packed_dim = draw(st.integers(0, len(shape) - 1)) if shape and store == "PackedU32" else 0
    scheme = QuantScheme(
        value, store=store, packed_dim=packed_dim, block=block, burn=draw(st.sampled_from(["0.22", "0.23"]))
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    half = 1 << (BITS[value] - 1)
    codes = np.asarray(rng.integers(-half, half, shape))
    sizes = [1] * (len(shape) - len(block)) + block if block else [max(size, 1) for size in shape]
    grid = [-(-size // part) for size, part in zip(shape, sizes, strict=True)]
    scales = rng.random(grid if block else 1, np.float32)
    spread = scales
    if block:
        for axis, (size, part) in enumerate(zip(shape, sizes, strict=True)):
            spread = np.take(spread, np.arange(size) // part, axis)
    return scheme, shape, payload_of(codes, scales, scheme), (spread * codes.astype("f4")).reshape(shape)


@given(quantized())
def test_any_scheme_of_integers(example):
    scheme, shape, payload, expected = example
    assert len(payload) == scheme.payload_bytes(shape)
    handle = file_of(scheme, shape, payload)["q"]
    assert handle.scheme == scheme
    numbers = handle.dequantize()
    assert (numbers.dtype, numbers.shape, numbers.nbytes) == ("F32", shape, expected.nbytes)
    np.testing.assert_array_equal(numbers.numpy(), expected)
    keys = [...]
    if shape:
        keys += [slice(1, None), slice(None, None, -2), (..., slice(None, None, 3)), slice(0, 0)]
    if shape and shape[0]:
        keys.append(0)
    for key in keys:
        np.testing.assert_array_equal(numbers[key].numpy(), expected[key])


@pytest.fixture
def handle():
    rng = np.random.default_rng(1)
    codes, scales = rng.integers(-7, 8, (6, 40)), rng.random((6, 5), np.float32)
    scheme = QuantScheme("Q4S", store="PackedU32", block=[8])
    made = file_of(scheme, (6, 40), payload_of(codes, scales, scheme))["q"]
    return made, np.repeat(scales, 8, 1) * codes.astype("f4")


def test_types_and_libraries(handle):
    torch = pytest.importorskip("torch")
    made, expected = handle
    numbers = made.dequantize(torch.float16)
    assert numbers.dtype == "F16"
    np.testing.assert_array_equal(numbers.numpy(), expected.astype("f2"))
    np.testing.assert_array_equal(made.dequantize("F64").numpy(), expected.astype("f8"))
    assert torch.equal(made.dequantize("bf16").torch(), torch.from_numpy(expected).to(torch.bfloat16))
    assert torch.equal(made.dequantize().torch(), torch.from_numpy(expected))
    assert torch.equal(made.dequantize()[::-2, 1].torch(), torch.from_numpy(expected[::-2, 1].copy()))
    np.testing.assert_array_equal(np.from_dlpack(made.dequantize()[2:4]), expected[2:4])
    np.testing.assert_array_equal(np.asarray(made.dequantize()), expected)
    assert made.dequantize()[1].bytes() == expected[1].tobytes()
    assert len(made.dequantize()) == 6
    assert "6x40" in repr(made.dequantize())


def test_the_scheme_is_data(handle):
    scheme = handle[0].scheme
    assert (scheme.value, scheme.store, scheme.packed_dim, scheme.mode) == ("Q4S", "PackedU32", 0, "Symmetric")
    assert (scheme.level, scheme.block, scheme.scales, scheme.burn) == ("Block", (8,), ("F32",), "0.22")
    assert str(scheme) == "Q4S F32 PackedU32(0) Block[8] Symmetric"
    plain = QuantScheme("Q8S", scale="F16", burn="0.21.0")
    assert (plain.level, plain.block, plain.scales, plain.burn) == ("Tensor", None, ("F16",), "0.21")
    two = QuantScheme("E2M1", store="PackedNative", block=[16], scale="UE4M3", tensor_scale="F32", burn="0.23")
    assert two.scales == ("UE4M3", "F32")
    assert two != plain
    assert len({two, two, plain}) == 2
    for wrong in ({"value": "Q9"}, {"store": "U8"}, {"scale": "F8"}, {"mode": "Table"}, {"burn": "0.19"}):
        with pytest.raises(errors.InvalidArgument, match="is '"):
            QuantScheme(**wrong)
    for wrong in ({"tensor_scale": "F32"}, {"block": [0]}, {"block": [], "scale": "F32"}, {"packed_dim": 1}):
        with pytest.raises(errors.InvalidArgument):
            QuantScheme(**wrong)
    with pytest.raises(errors.InvalidArgument, match=r"0\.21"):
        QuantScheme(block=[16], tensor_scale="F32", burn="0.21")


def test_the_release_changes_the_numbers():
    codes = np.arange(128, dtype="u1").reshape(4, 32)
    scales = np.array([1, 2, 3, 4], "<f4")
    payload = codes.tobytes() + scales.tobytes()
    old = file_of(QuantScheme(block=[2, 16], burn="0.21"), (4, 32), payload)["q"]
    new = file_of(QuantScheme(block=[2, 16], burn="0.22"), (4, 32), payload)["q"]
    runs = codes * np.repeat(scales, 32).reshape(4, 32)
    rectangles = codes * np.repeat(np.repeat(scales.reshape(2, 2), 2, 0), 16, 1)
    np.testing.assert_array_equal(old.dequantize().numpy(), runs)
    np.testing.assert_array_equal(new.dequantize().numpy(), rectangles)
    np.testing.assert_array_equal(old.dequantize(burn="0.22.1").numpy(), rectangles)
    one = np.array([2], "<f4").tobytes()
    for release, expected in (("0.22", np.arange(128.0) * 2), ("0.23", None)):
        e4m3 = file_of(QuantScheme("E4M3", burn=release), (126,), codes.reshape(-1)[:126].tobytes() + one)["q"]
        numbers = e4m3.dequantize().numpy()
        if expected is None:
            assert numbers[0x38] == 2
            assert numbers[0x7D] == 2 * 416
        else:
            np.testing.assert_array_equal(numbers, expected[:126])


def test_refusals(handle, tmp_path):
    made, _ = handle
    with pytest.raises(errors.InvalidArgument, match="I32"):
        made.dequantize("I32")
    with pytest.raises(errors.InvalidArgument, match=r"'0\.20' to '0\.23'"):
        made.dequantize(burn="1.0")
    with pytest.raises(errors.InvalidArgument, match="dequantize"):
        made[1:]
    with pytest.raises(IndexError):
        made.dequantize()[7]
    wn.save_file({"w": np.zeros(3), "n": np.zeros(3, np.int64)}, tmp_path / "w.bpk")
    with pytest.raises(errors.InvalidArgument, match="I64 is not quantized"):
        weightstore.open(tmp_path / "w.bpk")["n"].dequantize()
    assert weightstore.open(tmp_path / "w.bpk")["w"].dequantize().numpy().dtype == np.float32  # floats are cast
    # Along its outer dimension, packed across the whole tensor: no release says where a code is.
    odd = file_of(QuantScheme("Q4S", store="PackedU32", packed_dim=1, burn="0.20"), (4, 32), bytes(68))["q"]
    with pytest.raises(errors.BurnpackError, match="outer dimension") as refused:
        odd.dequantize().numpy()
    assert refused.value.tensor == "q"


def test_tensors_without_elements_and_dimensions():
    scale = np.array([3], "<f4").tobytes()
    assert file_of(QuantScheme(), (0, 4), scale)["q"].dequantize().numpy().shape == (0, 4)
    assert file_of(QuantScheme(), (), b"\5" + scale)["q"].dequantize().numpy() == 15
    packed = QuantScheme("Q4S", store="PackedU32")
    assert file_of(packed, (), b"\x0f\0\0\0" + scale)["q"].dequantize().numpy() == -3


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_large_tensors_use_all_threads(tmp_path, backend):
    shape = (1500, 2049)  # rows end inside a byte of a word
    rng = np.random.default_rng(3)
    codes, scales = rng.integers(-7, 8, shape), rng.random((1500, 65), np.float32)
    scheme = QuantScheme("Q4S", store="PackedU32", block=[32])
    writer = _core.Writer()
    writer.add("q", "QFloat", shape, _core.Producer.buffer(payload_of(codes, scales, scheme)), None, scheme)
    writer.write_file(tmp_path / "q.bpk", "burnpack")
    expected = np.repeat(scales, 32, 1)[:, :2049] * codes.astype("f4")
    with weightstore.open(tmp_path / "q.bpk", backend=backend) as file:
        np.testing.assert_array_equal(file["q"].dequantize().numpy(), expected)
        np.testing.assert_array_equal(file["q"].dequantize("F16")[700:1200].numpy(), expected[700:1200].astype("f2"))
    weightstore.convert(tmp_path / "q.bpk", tmp_path / "q.safetensors", dtype="F64", checksums=True)
    with weightstore.open(tmp_path / "q.safetensors", verify="full") as file:
        np.testing.assert_array_equal(file["q"].numpy(), expected.astype("f8"))
