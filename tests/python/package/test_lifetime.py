"""Views outlive what they were made from; nothing leaks."""

from __future__ import annotations

import gc
import os
import weakref

import numpy as np
import pytest

import weightstore
import weightstore.numpy

ARRAY = np.arange(100_000, dtype=np.float64)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file({"t": ARRAY, "u": ARRAY + 1}, path)
    return path


def mappings(path) -> int:
    with open("/proc/self/maps") as maps:
        return sum(os.fspath(path) in line for line in maps)


def views(file):
    yield file["t"].numpy()
    yield file["t"][::-2].numpy()[::-1][-50:]
    yield np.asarray(file["t"])
    yield np.from_dlpack(file["t"])


@pytest.mark.parametrize("remove", ["close", "unlink", "overwrite"])
def test_views_outlive_the_file(path, remove):
    file = weightstore.open(path)
    made = list(views(file))
    expected = [view.copy() for view in made]
    if remove == "unlink":
        path.unlink()
    elif remove == "overwrite":
        weightstore.numpy.save_file({"t": ARRAY * 0}, path)
    file.close()
    del file
    gc.collect()
    for view, values in zip(made, expected, strict=True):
        np.testing.assert_array_equal(view, values)


def test_torch_views_outlive_the_file(path):
    torch = pytest.importorskip("torch")
    file = weightstore.open(path)
    tensor, part, taken = file["t"].torch(), file["t"][1::3].torch(), torch.from_dlpack(file["u"])
    file.close()
    del file
    path.unlink()
    gc.collect()
    assert torch.equal(tensor, torch.from_numpy(ARRAY))
    assert torch.equal(part, torch.from_numpy(ARRAY[1::3].copy()))
    assert torch.equal(taken, torch.from_numpy(ARRAY + 1))


def test_the_mapping_goes_with_the_last_view(path):
    file = weightstore.open(path)
    made = list(views(file))
    assert mappings(path)
    file.close()
    while len(made) > 1:
        made.pop()
    gc.collect()
    assert mappings(path)
    made.clear()
    gc.collect()
    assert not mappings(path)


def test_pread_never_maps(path):
    file = weightstore.open(path, backend="pread")
    kept = [*views(file), file.load()]
    assert not mappings(path)
    assert len(kept) == 5


def test_no_descriptor_stays_open(path):
    before = len(os.listdir("/proc/self/fd"))
    for backend in ("mmap", "pread"):
        for _ in range(10):
            kept = weightstore.numpy.load_file(path, backend=backend)
            del kept
            with pytest.raises(KeyError):
                weightstore.open(path, backend=backend)["x"]
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_buffers_are_held_and_given_back():
    data = bytearray(weightstore.numpy.save({"t": ARRAY}))
    view = weightstore.open(data)["t"].numpy()
    with pytest.raises(BufferError):
        data.extend(b"x")
    np.testing.assert_array_equal(view, ARRAY)
    del view
    gc.collect()
    data.extend(b"x")


def test_arrays_live_until_they_are_written(tmp_path):
    """The writer holds what it was given, even when the caller's dict changes meanwhile."""
    tensors = {"a": np.full(1000, 1.0), "b": np.full(1000, 2.0)}

    def produce():
        tensors.clear()
        gc.collect()
        return np.full(1000, 3.0)

    tensors["0"] = weightstore.DeferredTensor("F64", (1000,), produce)
    weightstore.numpy.save_file(tensors, tmp_path / "m.safetensors")
    with weightstore.open(tmp_path / "m.safetensors") as file:
        assert [float(file[name][-1].numpy()) for name in ("0", "a", "b")] == [3.0, 1.0, 2.0]


def test_nothing_is_held_after_a_save(tmp_path):
    array = np.ones((100, 100))
    strided = np.ones((100, 100)).T
    references = [weakref.ref(array), weakref.ref(strided)]
    weightstore.numpy.save_file({"a": array, "b": strided}, tmp_path / "m.safetensors")
    del array, strided
    gc.collect()
    assert [reference() for reference in references] == [None, None]
