"""safe_open, as users of the safetensors package call it."""

from __future__ import annotations

import sys

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


def test_no_device_is_the_cpu(path):
    pytest.importorskip("torch")
    for framework in ("pt", "np"):
        with safe_open(path, framework, device=None) as file:
            np.testing.assert_array_equal(np.asarray(file.get_tensor("b")), ARRAY)


def test_repr(path, tmp_path):
    with safe_open(path, "np") as file:
        assert repr(file) == f"<safe_open {str(path)!r}, safetensors, 2 tensors, for numpy>"
        assert repr(file.get_slice("b")) == "<SafeSlice of <TensorHandle 'b' F32 10x5, 200 B>>"
    assert repr(file) == f"<safe_open {str(path)!r}, closed, for numpy>"
    assert repr(safe_open.__new__(safe_open)) == "<safe_open, not opened>"
    torch = pytest.importorskip("torch")
    assert repr(safe_open(path, "pt", torch.device("meta"))).endswith("2 tensors, for torch on meta>")


# Each framework, the names under which it is asked for, and the function that makes its tensors.
FRAMEWORKS = [
    (("jax", "flax"), "jax", "numpy", "array"),
    (("tf", "tensorflow"), "tensorflow", None, "convert_to_tensor"),
    (("mlx",), "mlx", "core", "array"),
    (("paddle",), "paddle", None, "to_tensor"),
]


@pytest.fixture
def without_frameworks():
    """Forgets the modules that a test puts in a framework's place."""

    def forget():
        for name in list(sys.modules):
            if name.partition(".")[0] in {package for _, package, _, _ in FRAMEWORKS}:
                del sys.modules[name]

    forget()
    yield
    forget()


@pytest.mark.usefixtures("without_frameworks")
@pytest.mark.parametrize(("names", "package", "module", "function"), FRAMEWORKS)
def test_other_frameworks(path, tmp_path, monkeypatch, names, package, module, function):
    """A module in the framework's place says what it was given. `make interop` has the frameworks themselves."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("")
    text = f"def {function}(array):\n    return {package!r}, array\n"
    (tmp_path / package / (f"{module}.py" if module else "__init__.py")).write_text(text)
    for name in names:
        with safe_open(path, name, device=None) as file:
            made, array = file.get_tensor("b")
            assert made == package
            np.testing.assert_array_equal(array, ARRAY)
            np.testing.assert_array_equal(file.get_slice("b")[2:4, [0, 1]][1], ARRAY[2:4, [0, 1]])
            assert {key: made for key, (made, _) in file.get_tensors().items()} == {"a": package, "b": package}
            assert package.replace("jax", "flax") in repr(file)
        with pytest.raises(SafetensorError, match="^Device cuda is not supported for framework"):
            safe_open(path, name, "cuda")


@pytest.mark.parametrize(("names", "package", "module", "function"), FRAMEWORKS)
def test_frameworks_that_are_not_there(path, monkeypatch, names, package, module, function):
    monkeypatch.setitem(sys.modules, package, None)
    for name in names:
        with pytest.raises(ModuleNotFoundError, match=f"needs the package {package}.*framework='np'"):
            safe_open(path, name)
