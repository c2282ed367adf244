"""Handles speak DLPack: zero-copy, read-only, alive as long as anybody looks."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import weightstore
import weightstore.numpy

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file({"t": ARRAY, "empty": np.zeros((0, 3), np.int8), "scalar": np.array(5)}, path)
    return path


def test_numpy_views_the_mapping(path):
    file = weightstore.open(path)
    one, other = np.from_dlpack(file["t"]), np.from_dlpack(file["t"])
    np.testing.assert_array_equal(one, ARRAY)
    assert not one.flags.writeable
    assert one.ctypes.data == other.ctypes.data
    file.close()
    del file
    gc.collect()
    np.testing.assert_array_equal(one, ARRAY)


@pytest.mark.parametrize(
    "key", [0, slice(None, None, -1), (..., 1), (slice(None), slice(2, None, -2), -1), slice(0, 0)]
)
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_selections(path, key, backend):
    np.testing.assert_array_equal(np.from_dlpack(weightstore.open(path, backend=backend)["t"][key]), ARRAY[key])


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_small_shapes(path, backend):
    file = weightstore.open(path, backend=backend)
    assert np.from_dlpack(file["empty"]).shape == (0, 3)
    assert np.from_dlpack(file["scalar"]) == 5


def test_copies(path):
    file = weightstore.open(path)
    copy = np.from_dlpack(file["t"], copy=True)
    assert copy.flags.writeable
    copy[:] = 0
    np.testing.assert_array_equal(file["t"].numpy(), ARRAY)
    with pytest.raises(BufferError, match="without a copy"):
        file["t"].__dlpack__(copy=False)  # an old consumer cannot be told that memory is read-only


def test_an_old_consumer_gets_a_copy(path):
    capsule = weightstore.open(path)["t"].__dlpack__()
    assert '"dltensor"' in repr(capsule)

    class Old:
        def __dlpack__(self, **options):
            return capsule

        def __dlpack_device__(self):
            return (1, 0)

    array = np.from_dlpack(Old())
    np.testing.assert_array_equal(array, ARRAY)


def test_unused_capsules_are_given_back(path):
    for version in (None, (1, 0), (1, 1)):
        for _ in range(100):
            weightstore.open(path)["t"].__dlpack__(max_version=version)


def test_requests_that_make_no_sense(path):
    handle = weightstore.open(path)["t"]
    assert handle.__dlpack_device__() == (1, 0)
    with pytest.raises(BufferError, match="device"):
        handle.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        handle.__dlpack__(stream=1)


def test_types_dlpack_lacks(write_raw):
    with pytest.raises(BufferError, match=r"\.bytes\(\)"):
        weightstore.open(write_raw({"t": ("F6_E2M3", (4,), b"abc")}))["t"].__dlpack__(max_version=(1, 0))


def test_wide_booleans(write_raw):
    data = write_raw({"t": ("BoolU32", (2,), bytes([1, 0, 0, 0, 0, 0, 0, 0]))}, "burnpack", burn="0.21")
    assert np.from_dlpack(weightstore.open(data)["t"]).tolist() == [True, False]


TORCH_TYPES = (
    "bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64 float8_e4m3fn"
)
TORCH_TYPES += " float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz float4_e2m1fn_x2"


@pytest.mark.parametrize("name", TORCH_TYPES.split())
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_torch(tmp_path, name, backend):
    torch = pytest.importorskip("torch")
    import weightstore.torch

    dtype = getattr(torch, name)
    tensor = torch.arange(16, dtype=torch.uint8).reshape(2, 8).view(dtype) if name != "bool" else torch.ones(2, 8) == 1
    weightstore.torch.save_file({"t": tensor}, tmp_path / "m.safetensors")
    taken = torch.from_dlpack(weightstore.open(tmp_path / "m.safetensors", backend=backend)["t"])
    gc.collect()
    assert taken.dtype == dtype
    assert taken.shape == tensor.shape
    assert torch.equal(taken.view(torch.uint8), tensor.view(torch.uint8))


def test_torch_ignores_the_flag_and_harms_nobody(path):
    """torch has no read-only tensors. Writing to one of ours goes to private memory: no crash, and the file stays."""
    torch = pytest.importorskip("torch")
    before = path.read_bytes()
    torch.from_dlpack(weightstore.open(path)["t"]).fill_(7)
    assert path.read_bytes() == before


def test_the_structures_are_torchs(tmp_path):
    """The sizes of our own declarations are those of the header that torch ships."""
    torch = pytest.importorskip("torch")
    import os
    import shutil
    import subprocess

    header = os.path.join(os.path.dirname(torch.__file__), "include", "ATen", "dlpack.h")
    ours = os.path.join(os.path.dirname(__file__), "..", "..", "..", "cpp", "python", "dlpack.h")
    compiler = shutil.which("c++")
    if compiler is None or not os.path.exists(header):
        pytest.skip("needs a compiler and torch's headers")
    code = f"""
#include <cstddef>
#include "{header}"
#include "{os.path.abspath(ours)}"
namespace own = weightstore::python::dlpack;
#define SAME(a, b) static_assert(a == b)
SAME(sizeof(own::ManagedTensorVersioned), sizeof(DLManagedTensorVersioned));
SAME(offsetof(own::ManagedTensorVersioned, flags), offsetof(DLManagedTensorVersioned, flags));
SAME(offsetof(own::ManagedTensorVersioned, tensor), offsetof(DLManagedTensorVersioned, dl_tensor));
SAME(sizeof(own::ManagedTensor), sizeof(DLManagedTensor));
SAME(offsetof(own::ManagedTensor, deleter), offsetof(DLManagedTensor, deleter));
SAME(offsetof(own::Tensor, dtype), offsetof(DLTensor, dtype));
SAME(offsetof(own::Tensor, strides), offsetof(DLTensor, strides));
SAME(offsetof(own::Tensor, byte_offset), offsetof(DLTensor, byte_offset));
SAME(own::kReadOnly, DLPACK_FLAG_BITMASK_READ_ONLY);
SAME(own::kCopied, DLPACK_FLAG_BITMASK_IS_COPIED);
SAME(own::kCpu, kDLCPU);
"""
    subprocess.run([compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"], input=code, text=True, check=True)
