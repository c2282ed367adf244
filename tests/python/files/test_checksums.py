"""Checksums: written beside the tensors, compared when asked."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weightstore
import weightstore.numpy
from weightstore import _core, errors
from weightstore._files.file import source_of

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
    entry = json.loads(metadata.pop("weightstore.crc32c"))
    # Hugging Face's loaders need a format where there are metadata; Burn does not.
    assert metadata == ({"format": "pt"} if path.suffix == ".safetensors" else {})
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


def without_checksum_of(path, name) -> None:
    """Takes one tensor out of the entry, as a tool does that renames a tensor and keeps the metadata."""
    data = path.read_bytes()
    entry = json.loads(weightstore.open(path).metadata["weightstore.crc32c"])
    # Of the same length, so that every offset stays.
    item = f'"{name}":"{entry[name]}"'.replace('"', '\\"').encode()
    other = f'"{"?" * len(name)}":"{entry[name]}"'.replace('"', '\\"').encode()
    if path.suffix == ".bpk":
        item, other = item.replace(b'\\"', b'"'), other.replace(b'\\"', b'"')
    assert data.count(item) == 1
    path.write_bytes(data.replace(item, other))


@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_full_verification_needs_a_checksum_of_every_tensor(path, backend):
    without_checksum_of(path, "b")
    flip(path, "b")
    with pytest.raises(errors.FormatError, match="'b'"):
        weightstore.open(path, backend=backend, verify="full")
    with pytest.raises(errors.FormatError, match="'b'"):
        weightstore.open(path.read_bytes(), verify="full")
    with path.open("rb") as file, pytest.raises(errors.FormatError, match="'b'"):
        weightstore.open(file, verify="full")


def test_full_verification_needs_checksums_in_every_shard(tmp_path):
    index = tmp_path / "m.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, index, checksums=True, max_shard_size=10)
    shard = next(path for path in tmp_path.glob("m-*.safetensors") if "b" in weightstore.open(path))
    weightstore.numpy.save_file(weightstore.numpy.load_file(shard), shard)
    with pytest.raises(errors.FormatError, match="none for it") as caught:
        weightstore.open(index, verify="full")
    assert caught.value.tensor in weightstore.open(shard)
    assert caught.value.path == str(shard)


def copies(source, target):
    """Ways to copy the tensors of an open file into another with new checksums."""
    reader = source_of(source).reader

    def producers(change=lambda producer, dtype, shape: producer):
        writer = _core.Writer()
        for number in range(len(reader)):
            name, dtype, shape, _ = reader.describe(number)
            writer.add(name, dtype, shape, change(_core.Producer.tensor(reader, number), dtype, shape))
        writer.write_file(target, "safetensors", checksums=True)

    def transposed(producer, dtype, shape):
        return producer.transpose(dtype, shape[0], 1) if len(shape) == 1 else producer

    def cast(producer, dtype, shape):
        return producer.cast("F32", "F32") if dtype == "F32" else producer

    yield lambda: producers()
    yield lambda: producers(transposed)
    yield lambda: producers(cast)
    yield lambda: _core.convert(reader, target, "safetensors")
    yield lambda: _core.convert(reader, target, "safetensors", checksums=True)


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_a_copy_of_a_damaged_tensor_is_refused(path, tmp_path, source):
    flip(path, "b")
    target = tmp_path / "copy.safetensors"
    opened = path if source == "path" else path.read_bytes()
    for number in range(5):
        with weightstore.open(opened, verify="lazy") as file:
            copy = list(copies(file, target))[number]
            with pytest.raises(errors.FormatError, match="'b'.*checksum"):
                copy()
            assert not target.exists()


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_a_copy_of_good_tensors_counts_as_their_verification(path, tmp_path, source):
    target = tmp_path / "copy.safetensors"
    opened = path if source == "path" else path.read_bytes()
    with weightstore.open(opened, verify="lazy") as file:
        for number in range(5):
            list(copies(file, target))[number]()
            for name, array in weightstore.numpy.load_file(target).items():
                np.testing.assert_array_equal(array, TENSORS[name])
            target.unlink()


def test_new_checksums_of_a_damaged_tensor_are_refused_though_nobody_verifies(path, tmp_path):
    flip(path, "b")
    with pytest.raises(errors.FormatError, match="'b'.*checksum"):
        weightstore.convert(path, tmp_path / "copy.safetensors", verify="off", checksums=True)
    assert not (tmp_path / "copy.safetensors").exists()


@pytest.mark.parametrize("verify", ["lazy", "full"])
def test_convert_refuses_a_damaged_tensor(path, tmp_path, verify):
    flip(path, "b")
    target = tmp_path / "copy.bpk"
    with pytest.raises(errors.FormatError, match="'b'.*checksum"):
        weightstore.convert(path, target, verify=verify)
    assert not target.exists()
    weightstore.convert(path, target, verify="off")
    with pytest.raises(errors.FormatError, match="'b'.*checksum"):
        weightstore.open(target, verify="full")


@pytest.mark.parametrize("target", ["one.safetensors", "one.bpk", "new.safetensors.index.json"])
def test_checksums_of_a_set_survive_conversion(tmp_path, target):
    index = tmp_path / "m.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, index, checksums=True, max_shard_size=10)
    weightstore.convert(index, tmp_path / target)
    assert weightstore.open(tmp_path / target, verify="full").verify() == 3
    weightstore.convert(tmp_path / target, tmp_path / "back.safetensors.index.json", max_shard_size=10)
    assert weightstore.open(tmp_path / "back.safetensors.index.json", verify="full").verify() == 3
    # Every shard speaks for its own tensors, as when it was saved.
    for before in sorted(tmp_path.glob("m-*.safetensors")):
        after = tmp_path / before.name.replace("m-", "back-", 1)
        assert weightstore.open(after).metadata == weightstore.open(before).metadata


def test_convert_adds_checksums(tmp_path):
    source, target = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    weightstore.numpy.save_file(TENSORS, source)
    weightstore.convert(source, target, checksums=True)
    assert weightstore.open(target, verify="full").verify() == 3
    assert weightstore.open(target).metadata["format"] == "pt"


@pytest.mark.parametrize("metadata", [None, {}, {"k": "v"}])
def test_metadata_of_ours_name_a_format(tmp_path, metadata):
    """Hugging Face's loaders take a file with metadata only when the format is one they know."""
    path, index = tmp_path / "m.safetensors", tmp_path / "s.safetensors.index.json"
    weightstore.numpy.save_file(TENSORS, path, metadata, checksums=True)
    weightstore.numpy.save_file(TENSORS, index, metadata, checksums=True, max_shard_size=10)
    for file in (path, *tmp_path.glob("s-*.safetensors")):
        assert weightstore.open(file).metadata["format"] == "pt"
    weightstore.numpy.save_file(TENSORS, path, {"format": "np"}, checksums=True)
    assert weightstore.open(path).metadata["format"] == "np"
