"""safe_open, as users of the safetensors package call it."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import SafetensorError, safe_open

ARRAY = np.arange(50, dtype=np.float32).reshape(10, 5)
TENSORS = {"b": ARRAY, "a": np.arange(3, dtype=np.int64)}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path, {"k": "v"})
    return path


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_numpy(path, backend):
    with safe_open(path, "np", "cpu", backend=backend) as file:
        assert file.keys() == ["a", "b"]
        assert file.offset_keys() == ["a", "b"]
        assert file.metadata() == {"k": "v"}
        tensor = file.get_tensor("b")
        np.testing.assert_array_equal(tensor, ARRAY)
        tensor[:] = 0  # as in the package: memory of its own
        part = file.get_slice("b")
        assert part.get_shape() == [10, 5]
        assert part.get_dtype() == "F32"
        np.testing.assert_array_equal(part[2:, -1], ARRAY[2:, -1])
        np.testing.assert_array_equal(part[-3:, ::-2], ARRAY[-3:, ::-2])
        assert part[[]].shape == (0, 5)
        part[:2][:] = 0
        tensors = file.get_tensors()
    np.testing.assert_array_equal(tensors["b"], ARRAY)
    assert tensors["b"].flags.writeable
    with pytest.raises(SafetensorError, match="File is closed"):
        file.keys()


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("framework", ["pt", "torch", "pytorch"])
def test_torch(path, backend, framework):
    torch = pytest.importorskip("torch")
    with safe_open(path, framework=framework, device="cpu", backend=backend) as file:
        assert torch.equal(file.get_tensor("b"), torch.from_numpy(ARRAY.copy()))
        assert torch.equal(file.get_slice("b")[1:3, 2], torch.from_numpy(ARRAY[1:3, 2].copy()))
        tensors = file.get_tensors()
    tensors["b"].add_(1)
    assert torch.equal(tensors["a"], torch.arange(3))


def test_no_metadata_is_none(tmp_path):
    weightstore.numpy.save_file({}, tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", "np") as file:
        assert file.metadata() is None


def test_burnpack(tmp_path):
    weightstore.numpy.save_file(TENSORS, tmp_path / "m.bpk")
    with safe_open(tmp_path / "m.bpk", "np") as file:
        np.testing.assert_array_equal(file.get_tensor("b"), ARRAY)


def test_refusals(path, tmp_path):
    with pytest.raises(SafetensorError, match="framework abacus is invalid"):
        safe_open(path, "abacus")
    with pytest.raises(SafetensorError, match="framework='np'"):
        safe_open(path, "jax")
    with pytest.raises(SafetensorError, match="not supported"):
        safe_open(path, "np", "cuda:0")
    with pytest.raises(SafetensorError, match="backend"):
        safe_open(path, "np", backend="floppy")
    with pytest.raises(FileNotFoundError):
        safe_open(tmp_path / "missing", "np")
    (tmp_path / "page").write_text("<html>" * 100)
    with pytest.raises(SafetensorError):
        safe_open(tmp_path / "page", "np")
    with safe_open(path, "np") as file, pytest.raises(SafetensorError, match="'c'"):
        file.get_tensor("c")


def test_a_device_torch_does_not_know(path):
    pytest.importorskip("torch")
    with pytest.raises(SafetensorError, match="device abacus is invalid"):
        safe_open(path, "pt", "abacus")
