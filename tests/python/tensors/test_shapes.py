"""Shapes that a file may have and no library can show: a clear error, and the bytes are there."""

from __future__ import annotations

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import errors

torch = pytest.importorskip("torch")
import weightstore.torch  # noqa: E402


@pytest.fixture
def file(tmp_path, write_raw):
    def make(shape, data=b"", dtype="F32"):
        path = tmp_path / "m.safetensors"
        write_raw({"first": ("F32", (1,), bytes(4)), "a": (dtype, shape, data)}, path=path)
        return path

    return make


def views_of(path):
    """What shows a tensor in numpy, in torch and by DLPack."""
    handle = weightstore.open(path)["a"]
    pager = weightstore.Pager(path)
    numpy = [
        handle.numpy,
        lambda: np.asarray(handle),
        lambda: handle[..., None:None].numpy(),
        *([lambda: handle[0:1].numpy()] if handle.shape[0] < 2 else []),
        lambda: weightstore.numpy.load_file(path),
        lambda: weightstore.numpy.load_file(path, backend="mmap"),
        lambda: weightstore.open(path, backend="pread")["a"].numpy(),
        lambda: weightstore.open(path).load(),
        lambda: pager.acquire("a").numpy(),
    ]
    torches = [
        handle.torch,
        lambda: weightstore.torch.load_file(path),
        lambda: weightstore.torch.load_file(path, backend="pread"),
        lambda: pager.acquire("a").torch(),
    ]
    dlpack = [lambda: handle.__dlpack__(max_version=(1, 0)), lambda: pager.acquire("a").__dlpack__(max_version=(1, 0))]
    return numpy, torches, dlpack


@pytest.mark.parametrize("shape", [(0, 2**63), (0, 2**64 - 1), (2**63, 0)])
def test_dimensions_beyond_63_bits(file, shape):
    path = file(shape)
    numpy, torches, dlpack = views_of(path)
    for view in numpy + torches:
        with pytest.raises(errors.FormatError, match="tensor 'a'.*shape") as caught:
            view()
        assert caught.value.tensor == "a"
    for view in dlpack:
        with pytest.raises(BufferError, match="tensor 'a'.*shape"):
            view()
    assert weightstore.open(path)["a"].bytes() == b""
    assert weightstore.open(path)["a"].shape == shape


def test_more_bytes_than_arrays_can_have_though_there_are_none(file):
    path = file((0, 2**62))
    numpy, torches, dlpack = views_of(path)
    for view in numpy[:2]:
        with pytest.raises(errors.FormatError, match="tensor 'a'.*shape"):
            view()
    for view in dlpack:
        with pytest.raises(BufferError, match="tensor 'a'.*shape"):
            view()
    # torch can.
    assert torches[0]().shape == (0, 2**62)
    assert torches[1]()["a"].shape == (0, 2**62)


def test_more_dimensions_than_numpy_has(file):
    path = file((1,) * 65, bytes(4))
    numpy, torches, dlpack = views_of(path)
    for view in numpy:
        with pytest.raises(errors.FormatError, match="tensor 'a'.*65 dimensions"):
            view()
    for view in torches:
        found = view()
        assert (found if isinstance(found, torch.Tensor) else found["a"]).dim() == 65
    for view in dlpack:
        view()
    assert weightstore.open(path)["a"].bytes() == bytes(4)
    assert weightstore.open(path)["a"][(0,) * 60].numpy().shape == (1,) * 5


def test_the_most_that_can_be_shown(file):
    assert weightstore.open(file((1,) * 64, bytes(4)))["a"].numpy().ndim == 64
    assert weightstore.open(file((0, 2**60)))["a"].numpy().shape == (0, 2**60)
