"""Statistics and differences of values, against numpy."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import weightstore
import weightstore.numpy as wn
from weightstore import _core

NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4", "I16": "<i2",
    "U16": "<u2", "I8": "i1", "U8": "u1", "BOOL": "?",
}  # fmt: skip


def opened(array: np.ndarray) -> weightstore.File:
    return weightstore.open(wn.save({"a": array}))


def check(array: np.ndarray, bins: int = 0, **options) -> weightstore.Statistics:
    """Compares with numpy's numbers."""
    found = weightstore.statistics(opened(array), bins=bins, **options)["a"]
    exact = array.reshape(-1)
    if exact.dtype.kind == "c":
        exact = exact.view(exact.real.dtype)
    wide = exact.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    assert found.count == exact.size
    assert (found.nans, found.infinities) == (np.isnan(wide).sum(), np.isinf(wide).sum())
    assert found.zeros == (exact == 0).sum()
    if not finite.size:
        assert math.isnan(found.min)
        assert math.isnan(found.std)
        assert sum(found.histogram) == 0
        return found
    if exact.dtype.kind in "iu" and exact.itemsize == 8:
        assert (found.min, found.max) == (int(exact.min()), int(exact.max()))
    else:
        assert (found.min, found.max) == (finite.min(), finite.max())
    long = finite.astype(np.longdouble)
    scale = max(float(np.abs(finite).max()), 1e-300)
    assert abs(found.mean - float(long.mean())) <= 1e-12 * scale
    deviation = float(np.sqrt(((long - long.mean()) ** 2).mean()))
    if 1e-150 < scale < 1e150:  # squares of other numbers are infinite or 0
        assert abs(found.std - deviation) <= 1e-9 * deviation + 1e-12 * scale
    if bins:
        assert sum(found.histogram) == finite.size
        low, high = float(finite.min()), float(finite.max())
        if 1e-300 < high - low < math.inf:
            # A number at the border of two bins may be in either, by the last digit of its distance.
            place = (finite - low) / (high - low) * bins
            for upto in range(1, bins):
                below = sum(found.histogram[:upto])
                assert (place < upto - 1e-9).sum() <= below <= (place < upto + 1e-9).sum()
    return found


@pytest.mark.parametrize("dtype", NUMPY)
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_like_numpy(dtype, data):
    array = data.draw(hnp.arrays(NUMPY[dtype], hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40)))
    check(array, bins=data.draw(st.sampled_from([0, 1, 7, 64])))


@pytest.mark.parametrize("size", [1, 7, 8, 9, 2047, 2048, 2049, 65_536, 300_001])
def test_all_paths_of_the_kernels(size):
    rng = np.random.default_rng(size)
    for dtype in ("f4", "f8", "f2", "i8"):
        array = (rng.standard_normal(size) * 100).astype(dtype)
        check(array, bins=24)
    array = rng.standard_normal(size).astype("f4")
    array[size // 2] = np.nan
    array[-1] = -np.inf
    check(array, bins=24, threads=1)


def test_large_numbers_close_together_keep_their_deviation():
    array = 1e9 + np.random.default_rng(1).standard_normal(100_000)
    found = check(array, bins=8)
    assert abs(found.std - 1) < 0.02
    check(np.full(5000, 3e38, "f4"), bins=3)
    check(np.array([1e308, -1e308, 1e308]), bins=4)
    check(np.array([5e-324, 0.0]), bins=4)


def test_complex_numbers_are_two():
    array = np.array([1 + 2j, -3 + 0j], np.complex64)
    assert check(array).count == 4


def test_bf16_f8_f4_and_other_small_types(write_raw):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    types = {
        "BF16": ml_dtypes.bfloat16,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
        "F8_E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
        "F8_E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    }
    for name, dtype in types.items():
        data = bytes(range(256)) * (1 if name != "BF16" else 3)
        wide = np.frombuffer(data, dtype).astype(np.float64)
        finite = wide[np.isfinite(wide)]
        file = weightstore.open(write_raw({"a": (name, [len(wide)], data)}))
        found = weightstore.statistics(file, bins=5)["a"]
        assert (found.count, found.nans, found.infinities) == (wide.size, np.isnan(wide).sum(), np.isinf(wide).sum())
        assert (found.min, found.max) == (finite.min(), finite.max()), name
        assert np.isclose(found.mean, finite.mean())
        assert np.isclose(found.std, finite.std())
        shown = np.array(_core.numbers_of(name, data))
        assert np.array_equal(shown, wide, equal_nan=True)
    file = weightstore.open(write_raw({"a": ("F4", [4], b"\x10\xf7"), "b": ("F6_E2M3", [4], b"abc")}))
    found = weightstore.statistics(file)
    assert found["b"] is None
    assert (found["a"].min, found["a"].max, found["a"].zeros) == (-6.0, 6.0, 1)


def test_quantized_tensors_are_their_numbers(tmp_path):
    numbers = np.random.default_rng(0).standard_normal((32, 64)).astype("f4")
    store = weightstore.BurnpackStore.from_file(tmp_path / "q.bpk").with_to_adapter(weightstore.quantize("Q8S"))
    store.collect_from({"layer": {"w": numbers}})
    for backend in ("mmap", "pread"):
        with weightstore.open(tmp_path / "q.bpk", backend=backend) as file:
            real = file["layer.w"].dequantize().numpy()
            found = weightstore.statistics(file)["layer.w"]
            assert (found.count, found.min, found.max) == (real.size, real.min(), real.max())


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_every_way_of_reading_gives_the_same(tmp_path, backend):
    torch = pytest.importorskip("torch")
    base = torch.arange(400_000, dtype=torch.float32)
    torch.save({"whole": base, "turned": base.reshape(400, 1000).T, "part": base[7::3]}, tmp_path / "m.pt")
    np.savez_compressed(tmp_path / "m.npz", a=base.numpy())
    with weightstore.open(tmp_path / "m.pt", backend=backend) as file:
        found = weightstore.statistics(file, bins=3)
        assert found["whole"] == found["turned"]._replace(mean=found["whole"].mean, std=found["whole"].std)
        assert found["part"].min == 7
    with weightstore.open(tmp_path / "m.npz", backend=backend) as file:
        assert weightstore.statistics(file, bins=3)["a"].max == 399_999


def test_a_damaged_tensor_is_an_error_if_the_file_is_verified(tmp_path):
    path = tmp_path / "m.safetensors"
    wn.save_file({"a": np.ones(1000, "f4")}, path, checksums=True)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    for backend in ("mmap", "pread"):
        with (
            weightstore.open(path, verify="lazy", backend=backend) as file,
            pytest.raises(weightstore.FormatError, match="'a'"),
        ):
            weightstore.statistics(file)


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_file_that_becomes_shorter_is_an_error(tmp_path, backend):
    path = tmp_path / "m.safetensors"
    wn.save_file({"a": np.ones(1_000_000, "f4")}, path)
    with weightstore.open(path, backend=backend) as file:
        os.truncate(path, 100_000)
        with pytest.raises(weightstore.StoreIOError):
            weightstore.statistics(file)


def test_a_small_file_cannot_ask_for_endless_work(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(1).expand(10**12)}, tmp_path / "bomb.pt")
    with weightstore.open(tmp_path / "bomb.pt") as file, pytest.raises(weightstore.LimitError):
        weightstore.statistics(file)


def test_progress_and_wrong_arguments(tmp_path):
    file = opened(np.zeros(3_000_000, "f4"))
    seen = []
    weightstore.statistics(file, bins=4, progress=lambda done, total, name: seen.append((done, total)))
    assert seen[-1] == (12_000_000, 12_000_000)
    with pytest.raises(weightstore.OperationCancelled):
        weightstore.statistics(file, progress=lambda *_: False)
    with pytest.raises(weightstore.TensorNotFound):
        weightstore.statistics(file, ["b"])
    with pytest.raises(weightstore.InvalidArgument, match="65536"):
        weightstore.statistics(file, bins=65_537)


# ---- differences -------------------------------------------------------------------------------------------------------


def compared(a: np.ndarray, b: np.ndarray):
    found = weightstore.difference(opened(a), opened(b), values=True)
    return found.changed[0].values if found.changed else None


def expected(a: np.ndarray, b: np.ndarray):
    x, y = a.reshape(-1).astype("f8"), b.reshape(-1).astype("f8")
    differ = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    both = differ & np.isfinite(x) & np.isfinite(y)
    distance = np.abs(x - y)[both]
    relative = distance / np.maximum(np.abs(x), np.abs(y))[both]
    return differ.sum(), (differ & ~both).sum(), distance.max(initial=0), relative.max(initial=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_differences_like_numpy(data):
    size = data.draw(st.integers(0, 3000))
    types = st.sampled_from(["<f4", "<f2", "<f8", "<i4", "u1"])
    seed = np.random.default_rng(data.draw(st.integers(0, 99)))
    base = seed.integers(-50, 50, size)
    a, b = base.astype(data.draw(types)), base.astype(data.draw(types))
    for array in (a, b):
        for _ in range(data.draw(st.integers(0, 3)) if size else 0):
            value = data.draw(
                st.sampled_from([7, 0] + ([np.nan, np.inf, -np.inf, -0.0, 1e-3] if array.dtype.kind == "f" else []))
            )
            array[data.draw(st.integers(0, size - 1))] = value
    found = weightstore.difference(opened(a), opened(b), values=True)
    differing, unmeasured, absolute, relative = expected(a, b)
    if not found.changed:
        assert differing == 0
        assert a.dtype == b.dtype
        return
    values = found.changed[0].values
    assert (values.count, values.differing, values.unmeasured) == (size, differing, unmeasured)
    assert (values.max_absolute, values.max_relative) == (absolute, relative)


def test_large_integers_differ_exactly():
    a = np.array([2**62, -(2**63), 5], "i8")
    b = a + np.array([1, 0, 0], "i8")
    found = compared(a, b)
    assert (found.differing, found.max_absolute) == (1, 1.0)
    assert compared(np.array([2**63], "u8"), np.array([-(2**63)], "i8")).max_absolute == 2.0**64
    assert compared(np.array([1], "u8"), np.array([1], "i8")).differing == 0


def test_names_shapes_types_and_bytes(write_raw):
    a = weightstore.open(
        write_raw({"x": ("F6_E2M3", [4], b"abc"), "y": ("F32", [2], b"\0" * 8), "only": ("U8", [1], b"a")})
    )
    b = weightstore.open(
        write_raw({"x": ("F6_E2M3", [4], b"abd"), "y": ("F32", [1, 2], b"\0" * 8), "new": ("U8", [1], b"a")})
    )
    found = weightstore.difference(a, b, values=True)
    assert (found.missing, found.extra, found.same) == (("only",), ("new",), 0)
    x, y = found.changed
    assert (x.name, x.values.differing, x.values.unmeasured, x.values.max_absolute) == ("x", 1, 1, 0)
    assert (y.name, y.has_other_shape, y.has_other_dtype, y.values.differing) == ("y", True, False, 0)
    assert weightstore.difference(a, a, values=True).is_same
    assert [one.name for one in weightstore.difference(a, b).changed] == ["y"]


@pytest.mark.parametrize("dtype", ["Q8_0", "Q4_0"])
def test_tensors_that_gguf_quantizes_are_their_numbers(tmp_path, dtype):
    numbers = np.random.default_rng(0).standard_normal((64, 96)).astype("f4")
    wn.save_file({"a.weight": numbers}, tmp_path / "m.safetensors")
    weightstore.convert(tmp_path / "m.safetensors", tmp_path / "q.gguf", dtype=dtype)
    for backend in ("mmap", "pread"):
        with weightstore.open(tmp_path / "q.gguf", backend=backend) as file:
            real = file["a.weight"].dequantize().numpy()
            found = weightstore.statistics(file, bins=4)["a.weight"]
            assert (found.count, found.min, found.max) == (real.size, real.min(), real.max())
            assert np.isclose(found.mean, real.mean(dtype="f8"))
            assert sum(found.histogram) == real.size
            assert weightstore.difference(file, file, values=True).is_same
            with weightstore.open(tmp_path / "m.safetensors") as before:
                values = weightstore.difference(before, file, values=True).changed[0].values
                assert values.max_absolute == np.abs(numbers.astype("f8") - real).max()
