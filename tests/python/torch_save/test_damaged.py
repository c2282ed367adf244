"""Files of torch.save() that were cut or changed."""

from __future__ import annotations

import io
import random
import struct
import zipfile

import pytest

import weightstore
from support.torch_files import refused, save
from weightstore import FormatError, PytorchError, StoreError

torch = pytest.importorskip("torch")

STATE = {"a": torch.arange(4.0), "b": {"t": torch.arange(6).reshape(2, 3).T, "n": 5}}


@pytest.mark.parametrize("zipped", [True, False])
def test_every_truncation_is_refused(zipped):
    data = save(STATE, zipped)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            weightstore.open(data[:length])
    weightstore.open(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_bytes_behind_the_end_are_refused(zipped):
    for tail in (b"\0", b"PK", bytes(100)):
        refused(save(STATE, zipped) + tail)


def test_changed_bytes_are_refused_or_harmless():
    """One byte changed anywhere: an error of ours, or tensors of the same names, types and shapes."""
    draw = random.Random(5)
    for zipped in (True, False):
        data = save(STATE, zipped)
        for _ in range(1000):
            changed = bytearray(data)
            changed[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            for opaque in ("error", "skip"):
                try:
                    with weightstore.open(bytes(changed), opaque=opaque) as file:
                        for handle in file.values():
                            handle.bytes()
                except StoreError:
                    continue


@pytest.mark.parametrize("place", range(4))
def test_a_damaged_storage_is_found_when_asked_for(tmp_path, place):
    state = {"a": torch.arange(100.0), "t": torch.arange(100.0, 200).reshape(10, 10).T}
    data = bytearray(save(state))
    weightstore.open(bytes(data), verify="full")
    at = bytes(data).index(bytes(state["t"].untyped_storage())) + place * 100
    data[at] ^= 4
    path = tmp_path / "x.pt"
    path.write_bytes(data)
    weightstore.open(path).load()
    with pytest.raises(PytorchError, match="CRC"):
        weightstore.open(path, verify="full")
    with weightstore.open(path, verify="lazy") as file:
        file["a"].numpy()
        for read in (file["t"].numpy, file["t"].torch, file["t"].bytes, file["t"][:1].numpy, file.load, file.verify):
            with pytest.raises(PytorchError, match="CRC"):
                read()
    with weightstore.open(save(state)) as file:
        assert file.verify() == 2


def test_a_file_without_checksums_cannot_be_verified():
    before = torch.serialization.get_crc32_options()
    try:
        torch.serialization.set_crc32_options(False)
        data = save(STATE)
    finally:
        torch.serialization.set_crc32_options(before)
    assert len(weightstore.open(data)) == 2
    refused(data, "no checksum", verify="full")
    refused(save(STATE, False), "no checksum", verify="full")


def test_full_verification_needs_the_crc_of_every_storage():
    """One CRC taken out, in the local header or its descriptor and in the directory, and the storage damaged."""
    state = {"a": torch.arange(4.0), "b": torch.arange(8.0)}
    data = bytearray(save(state))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        crc = struct.pack("<I", archive.getinfo(next(n for n in archive.namelist() if n.endswith("data/1"))).CRC)
    assert data.count(crc) == 2
    data = data.replace(crc, bytes(4))
    data[data.index(bytes(state["b"].untyped_storage())) + 4] ^= 1
    assert len(weightstore.open(bytes(data), verify="lazy").load()) == 2
    refused(bytes(data), "storage 'archive/data/1' has no checksum", verify="full")
    assert weightstore.open(bytes(data)).without_checksum() == ["b"]


def test_tensors_without_checksum_are_named_whatever_their_order_in_the_file():
    with weightstore.open(save({"z": torch.arange(4.0), "a": torch.arange(3), "e": torch.zeros(0)}, False)) as file:
        assert file.without_checksum() == ["a", "z"]


def test_tensors_without_bytes_need_no_checksum():
    for zipped in (True, False):
        with weightstore.open(save({"t": torch.zeros(0), "u": torch.zeros(2, 0)}, zipped), verify="full") as file:
            assert file.verify() == 0
            assert file.without_checksum() == []


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("target", ["m.safetensors", "m.bpk"])
def test_a_damaged_storage_is_not_converted(tmp_path, whole, target):
    state = {"a": torch.arange(100.0) if whole else torch.arange(200.0)[50:150], "t": torch.eye(3)[:, :2]}
    data = bytearray(save(state))
    good, bad = tmp_path / "good.pt", tmp_path / "bad.pt"
    good.write_bytes(data)
    data[data.index(bytes(state["a"].untyped_storage())) + 300] ^= 4
    bad.write_bytes(data)
    with pytest.raises(PytorchError, match="CRC"):
        weightstore.convert(bad, tmp_path / target)
    assert not (tmp_path / target).exists()
    weightstore.convert(bad, tmp_path / target, verify="off")
    weightstore.convert(good, tmp_path / target, overwrite=True, checksums=True)
    with weightstore.open(tmp_path / target, verify="full") as file:
        for name, value in state.items():
            assert torch.equal(file[name].torch(), value)


def test_a_damaged_pickle_is_always_found():
    data = bytearray(save(STATE))
    data[bytes(data).index(b"storage")] ^= 32
    refused(bytes(data), "CRC")
