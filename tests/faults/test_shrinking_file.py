"""A file that is cut short while it is open: with backend="pread" that is an error, never the end of the process."""

from __future__ import annotations

import os

import numpy as np
import pytest

import weightstore
import weightstore.numpy as wn
from weightstore.errors import StoreIOError

ARRAYS = {"a": np.arange(3_000_000, dtype="f4"), "b": np.arange(1000, dtype="i8"), "c": np.arange(10, dtype="u1")}


@pytest.fixture(params=["model.safetensors", "model.bpk"])
def path(request, tmp_path):
    path = tmp_path / request.param
    wn.save_file(ARRAYS, path, durable=False, checksums=True)
    return path


READS = {
    "bytes": lambda file: file["a"].bytes(),
    "numpy": lambda file: file["a"].numpy(),
    "torch": lambda file: pytest.importorskip("torch") and file["a"].torch(),
    "slice": lambda file: file["a"][-5:].numpy(),
    "steps": lambda file: file["a"][::100_000].numpy(),
    "load": lambda file: file.load(),
    "load_into": lambda file: file.load_into({"a": np.empty_like(ARRAYS["a"])}),
    "verify": lambda file: file.verify(),
    "dlpack": lambda file: np.from_dlpack(file["a"]),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("left", [0, 20, 4096, 6_000_001])
def test_every_read_raises(path, read, left):
    with weightstore.open(path, backend="pread") as file:
        os.truncate(path, left)
        with pytest.raises(StoreIOError) as caught:
            READS[read](file)
        assert str(path) in str(caught.value)
        assert sorted(file) == ["a", "b", "c"], "what was read before is still there"


def test_reads_in_front_of_the_cut_succeed(path):
    with weightstore.open(path, backend="pread") as file:
        whole = file["a"].numpy()
        os.truncate(path, os.path.getsize(path) - 9_000_000)
        assert (file["a"][:10].numpy() == ARRAYS["a"][:10]).all()
        assert (whole == ARRAYS["a"]).all(), "what was read is independent of the file"


def test_lazy_verification_of_a_cut_file_is_an_error(path):
    with weightstore.open(path, backend="pread", verify="lazy") as file:
        os.truncate(path, 4096)
        with pytest.raises(StoreIOError):
            file["a"].numpy()


def test_a_file_that_grows_reads_as_it_was(path):
    with weightstore.open(path, backend="pread") as file:
        with open(path, "ab") as stream:
            stream.write(bytes(10_000))
        assert (file["c"].numpy() == ARRAYS["c"]).all()
        assert (file.load()["a"] == ARRAYS["a"]).all()


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_replaced_file_reads_as_it_was(path, backend):
    with weightstore.open(path, backend=backend) as file:
        before = file["a"].numpy()
        wn.save_file({"a": np.zeros(3)}, path, durable=False)
        assert (file["b"].numpy() == ARRAYS["b"]).all()
        assert (before == ARRAYS["a"]).all()
        path.unlink()
        assert (file["c"].numpy() == ARRAYS["c"]).all()


def test_a_conversion_whose_source_shrinks_leaves_no_target(path, tmp_path):
    def cut(*_):
        os.truncate(path, 4096)
        return True

    with pytest.raises(StoreIOError):
        weightstore.convert(path, tmp_path / "target.bpk", progress=cut)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
