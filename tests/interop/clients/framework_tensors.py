"""safe_open for jax, TensorFlow, MLX and Paddle, with the frameworks themselves. Without torch, which does not agree with all
of them in one process."""

from __future__ import annotations

import importlib

import ml_dtypes
import numpy as np
import pytest
import safetensors

import weightstore
import weightstore.numpy

FRAMEWORKS = {
    "jax": ("jax.numpy", ("jax", "flax")),
    "tensorflow": ("tensorflow", ("tf", "tensorflow")),
    "mlx": ("mlx.core", ("mlx",)),
    "paddle": ("paddle", ("paddle",)),
}
CASES = [(package, name) for package, (_, names) in FRAMEWORKS.items() for name in names]

TENSORS = {
    "f32": np.arange(12, dtype=np.float32).reshape(3, 4),
    "f16": np.arange(5, dtype=np.float16),
    "bf16": np.arange(5).astype(ml_dtypes.bfloat16),
    "i32": np.arange(6, dtype=np.int32).reshape(1, 6),
    "u8": np.arange(3, dtype=np.uint8),
    "bool": np.array([True, False, True]),
    "scalar": np.array(2.5, np.float32),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("frameworks") / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path)
    return path


@pytest.fixture(autouse=True)
def imported(package):
    """The package finds mlx.core only if the program has imported it."""
    importlib.import_module(FRAMEWORKS[package][0])


@pytest.fixture(params=["in place", "weightstore"])
def opening(request):
    return {"in place": safetensors.safe_open, "weightstore": weightstore.safe_open}[request.param]


def as_array(found, package: str):
    """The values as numpy has them; of bfloat16, which numpy lacks, as float32."""
    if "bfloat16" not in str(found.dtype):
        return np.asarray(found)
    module = importlib.import_module(FRAMEWORKS[package][0])
    cast = module.cast if package == "tensorflow" else type(found).astype
    return np.asarray(cast(found, "float32" if package in ("tensorflow", "paddle") else module.float32))


def check(found, expected, package: str) -> None:
    assert type(found).__module__.partition(".")[0] in (package, "jaxlib")
    assert expected.dtype.name in str(found.dtype)
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(as_array(found, package).astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(("package", "name"), CASES)
@pytest.mark.parametrize("tensor", TENSORS)
def test_tensors(path, opening, package, name, tensor):
    with opening(path, name) as file:
        check(file.get_tensor(tensor), TENSORS[tensor], package)


@pytest.mark.parametrize(("package", "name"), CASES)
@pytest.mark.parametrize("key", [0, -1, (slice(1, None), 2), (..., slice(0, 4, 2))], ids=str)
def test_slices(path, opening, package, name, key):
    with opening(path, name, device="cpu") as file:
        part = file.get_slice("f32")
        assert (part.get_shape(), part.get_dtype()) == ([3, 4], "F32")
        check(part[key], TENSORS["f32"][key], package)


@pytest.mark.parametrize(("package", "name"), CASES)
def test_all_tensors(path, package, name):
    with weightstore.safe_open(path, name) as file:
        found = file.get_tensors()
    assert found.keys() == TENSORS.keys()
    for tensor, expected in TENSORS.items():
        check(found[tensor], expected, package)


@pytest.mark.parametrize(("package", "name"), CASES)
@pytest.mark.parametrize("other", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats(tmp_path, package, name, other):
    """As the framework has them: the package itself refuses them for most frameworks."""
    if package == "mlx":
        pytest.skip("MLX has no such types")
    weightstore.numpy.save_file({"t": np.ones(4).astype(getattr(ml_dtypes, other))}, tmp_path / "m.safetensors")
    with weightstore.safe_open(tmp_path / "m.safetensors", name) as file:
        found = file.get_tensor("t")
    assert other in str(found.dtype)
    assert tuple(found.shape) == (4,)
