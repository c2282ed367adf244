"""Files that lost their end, gained one, or had a bit changed."""

from __future__ import annotations

import io
import random

import pytest

import weightstore
from weightstore import StoreError
from weightstore.errors import FormatError

FORMATS = {"safetensors": ".safetensors", "burnpack": ".bpk"}
TENSORS = {
    "weight": ("F32", (3, 5), bytes(range(1, 61))),
    "bias": ("U8", (7,), bytes(range(61, 68))),
    "empty": ("F16", (0, 2), b""),
    "scalar": ("I64", (), bytes(range(68, 76))),
}
WAYS = ["mmap", "pread", "bytes", "object"]


def open_way(way: str, path, data: bytes, **options):
    if way in ("bytes", "object"):
        return weightstore.open(data if way == "bytes" else io.BytesIO(data), **options)
    path.write_bytes(data)
    return weightstore.open(path, backend=way, **options)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("metadata", [None, {"format": "pt", "k": "v"}], ids=["plain", "metadata"])
def test_every_truncation_is_refused(write_raw, tmp_path, format, way, metadata):
    data = write_raw(TENSORS, format, metadata=metadata)
    path = tmp_path / f"file{FORMATS[format]}"
    for length in range(len(data)):
        with pytest.raises(FormatError):
            open_way(way, path, data[:length])
    open_way(way, path, data)


@pytest.mark.parametrize("way", WAYS)
def test_a_byte_too_many_is_refused_in_safetensors(write_raw, tmp_path, way):
    data = write_raw(TENSORS)
    for tail in (b"\0", b" ", b"x", bytes(8), data):
        with pytest.raises(FormatError):
            open_way(way, tmp_path / "file.safetensors", data + tail)


@pytest.mark.parametrize("way", WAYS[:3])
def test_bytes_behind_the_last_tensor_are_passed_over_in_burnpack(write_raw, contents, tmp_path, way):
    data = write_raw(TENSORS, "burnpack")
    for tail in (b"\0", b"x", bytes(300)):
        with open_way(way, tmp_path / "file.bpk", data + tail) as file:
            assert contents(file) == TENSORS


@pytest.mark.parametrize("first", [b"\1", b"\0"], ids=["data", "zeros"])
def test_an_aligned_file_without_its_end_is_not_taken_for_a_packed_one(write_raw, first):
    """One tensor, cut so that the length is what 0.19 would have written: only the zeros in front of the data tell."""
    data = write_raw({"w": ("U8", (600,), first * 600)}, "burnpack")
    metadata_end = 10 + int.from_bytes(data[6:10], "little")
    with pytest.raises(FormatError, match="truncated"):
        weightstore.open(data[: metadata_end + 600])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
def test_full_verification_finds_every_flipped_bit_of_data(write_raw, tmp_path, format, way):
    data = write_raw(TENSORS, format, checksums=True)
    path = tmp_path / f"file{FORMATS[format]}"
    with open_way(way, path, data, verify="full") as file:
        assert file.verify() == len(TENSORS)
    flips = 0
    for _, _, payload in TENSORS.values():
        start = data.index(payload) if payload else 0
        for bit in range(len(payload) * 8):
            damaged = bytearray(data)
            damaged[start + bit // 8] ^= 1 << bit % 8
            with pytest.raises(FormatError, match="crc32c|checksum"):
                open_way(way, path, bytes(damaged), verify="full")
            flips += 1
    assert flips == 600


@pytest.mark.parametrize("format", FORMATS)
def test_lazy_verification_names_the_damaged_tensor_and_reads_the_others(write_raw, tmp_path, format):
    data = bytearray(write_raw(TENSORS, format, checksums=True))
    data[bytes(data).index(TENSORS["bias"][2]) + 3] ^= 4
    path = tmp_path / f"file{FORMATS[format]}"
    for way in WAYS:
        file = open_way(way, path, bytes(data), verify="lazy")
        assert file["weight"].bytes() == TENSORS["weight"][2]
        for read in (file["bias"].bytes, file["bias"].numpy, file["bias"][2:5].numpy, file["bias"].torch):
            with pytest.raises(FormatError) as caught:
                read()
            assert caught.value.tensor == "bias"
        with pytest.raises(FormatError):
            file.load()
    with weightstore.open(bytes(data), verify="off") as file:
        assert file["bias"].bytes() != TENSORS["bias"][2]


@pytest.mark.parametrize("format", FORMATS)
def test_full_verification_of_a_file_without_checksums_is_refused(write_raw, format):
    with pytest.raises(StoreError, match="checksum"):
        weightstore.open(write_raw(TENSORS, format), verify="full")


@pytest.mark.parametrize("format", FORMATS)
def test_flipped_bits_in_the_header_are_refused_or_harmless(write_raw, format):
    """Whatever opens has every byte where it says, and can be read."""
    data = write_raw(TENSORS, format, metadata={"k": "v"}, checksums=True)
    header_end = data.index(TENSORS["weight"][2]) if format == "burnpack" else 8 + int.from_bytes(data[:8], "little")
    refused = 0
    for bit in range(header_end * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            file = weightstore.open(bytes(damaged))
        except StoreError as error:
            refused += 1
            assert str(error)
            continue
        for handle in file.values():
            assert len(handle.bytes()) == handle.nbytes
    assert refused > 500


@pytest.mark.parametrize("format", FORMATS)
def test_damage_of_any_kind_never_does_more_than_raise(write_raw, format):
    data = write_raw(TENSORS, format, metadata={"k": "v"}, checksums=True)
    rng = random.Random(5)
    for _ in range(4_000):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 2, 8])):
            at = rng.randrange(len(damaged))
            kind = rng.randrange(3)
            if kind == 0:
                damaged[at] = rng.choice([0, 0x7F, 0x80, 0xFF, 0x1B, 0x9F, 0xBF, rng.randrange(256)])
            elif kind == 1:
                del damaged[at : at + rng.randrange(1, 9)]
            else:
                damaged[at:at] = damaged[at : at + rng.randrange(1, 9)]
        try:
            file = weightstore.open(bytes(damaged), verify=rng.choice(["off", "lazy", "full"]))
            assert sum(len(handle.bytes()) for handle in file.values()) <= len(damaged)
        except StoreError as error:
            assert str(error)
