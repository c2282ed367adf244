"""Checksums: written beside the tensors, compared when asked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import _core, errors

TENSORS = {"a": np.arange(100, dtype=np.float32), "b": np.arange(7, dtype=np.uint8), "empty": np.zeros(0)}


@pytest.fixture(params=["safetensors", "bpk"])
def path(tmp_path, request):
    path = tmp_path / f"m.{request.param}"
    weightstore.numpy.save_file(TENSORS, path, {"k": "v"}, checksums=True)
    return path


def flip(path, name) -> None:
    """Changes the last byte of a tensor."""
    data = bytearray(path.read_bytes())
    at = bytes(data).rindex(TENSORS[name].tobytes())
    data[at + TENSORS[name].nbytes - 1] ^= 1
    path.write_bytes(data)


def test_the_known_value():
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.crc32c(b"456789", _core.crc32c(b"123")) == 0xE3069283
    assert _core.crc32c(b"") == 0


def test_one_metadata_entry(path):
    metadata = weightstore.open(path).metadata
    assert metadata.pop("k") == "v"
    entry = json.loads(metadata.pop(_core.CHECKSUM_KEY))
    assert not metadata
    assert entry == {name: f"{_core.crc32c(array.tobytes()):08x}" for name, array in TENSORS.items()}


@pytest.mark.parametrize("backend", ["mmap", "pread"])
@pytest.mark.parametrize("verify", ["off", "lazy", "full"])
def test_a_good_file_passes(path, backend, verify):
    with weightstore.open(path, backend=backend, verify=verify) as file:
        for name, array in TENSORS.items():
            np.testing.assert_array_equal(file[name].numpy(), array)
        assert file.verify() == 3


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_a_changed_byte_is_found(path, backend):
    flip(path, "b")
    with pytest.raises(errors.FormatError, match="'b'") as caught:
        weightstore.open(path, backend=backend, verify="full")
    assert caught.value.tensor == "b"

    with weightstore.open(path, backend=backend, verify="lazy") as file:
        np.testing.assert_array_equal(file["a"].numpy(), TENSORS["a"])
        for read in (
            lambda: file["b"].numpy(),
            lambda: file["b"].bytes(),
            lambda: file["b"][2:].numpy(),
            lambda: file["b"].__dlpack__(max_version=(1, 0)),
            lambda: file.load(),
            lambda: file.load_into({"b": np.zeros(7, np.uint8)}),
            lambda: file.verify(),
        ):
            with pytest.raises(errors.FormatError, match="'b'"):
                read()

    with weightstore.open(path, backend=backend) as file:
        assert file["b"].numpy()[-1] == TENSORS["b"][-1] ^ 1


def test_full_verification_needs_checksums(tmp_path):
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path)
    with pytest.raises(errors.FormatError, match="no checksums"):
        weightstore.open(path, verify="full")
    with weightstore.open(path, verify="lazy") as file:
        assert file.verify() == 0
        np.testing.assert_array_equal(file["a"].numpy(), TENSORS["a"])


def test_the_safetensors_package_reads_such_files(tmp_path):
    reference = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "m.safetensors"
    weightstore.numpy.save_file(TENSORS, path, checksums=True)
    for name, array in reference.load_file(path).items():
        np.testing.assert_array_equal(array, TENSORS[name])


def test_checksums_survive_conversion(path, tmp_path):
    other = tmp_path / ("other.bpk" if path.suffix == ".safetensors" else "other.safetensors")
    weightstore.convert(path, other)
    assert weightstore.open(other, verify="full").verify() == 3


def test_shards(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, index, checksums=True, max_shard_size=10)
    assert weightstore.open(index, verify="full").verify() == 3
