"""ZIP archives that were made to harm."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest

import weightstore
from support.torch_files import archive, entries, patched, refused
from weightstore import FormatError, LimitError

torch = pytest.importorskip("torch")


def test_archives_that_two_readers_could_see_differently_are_refused():
    good = archive(b"\x80\x02}.")
    first = entries(good)[0]
    end = good.index(b"PK\5\6")
    cases = {
        "encrypted": patched(good, (first + 8, b"\1\0"), (6, b"\1\0")),
        "flags of the directory only": patched(good, (first + 8, b"\0\x08")),
        "flags no writer sets": patched(good, (first + 8, b"\0\x40"), (6, b"\0\x40")),
        "method": patched(good, (first + 10, b"\x0c\0"), (8, b"\x0c\0")),
        "local method": patched(good, (8, b"\x08\0")),
        "local name": patched(good, (30, b"brchive")),
        "local size": patched(good, (22, b"\1")),
        "local crc": patched(good, (14, b"\1")),
        "directory size": patched(good, (first + 20, b"\1"), (first + 24, b"\1")),
        "two sizes": patched(good, (first + 24, b"\1")),
        "offset": patched(good, (first + 42, b"\1")),
        "disk": patched(good, (first + 34, b"\1")),
        "comment length": patched(good, (first + 32, b"\1")),
        "count": patched(good, (end + 8, b"\2\0\2\0")),
        "counts": patched(good, (end + 8, b"\2\0")),
        "huge count": patched(good, (end + 8, b"\xff\xff\xff\xff")),
        "directory place": patched(good, (end + 16, b"\0\0\0\0")),
        "disks": patched(good, (end + 4, b"\1\0")),
        "prefix": b"x" + good,
        "control character": patched(good, (first + 46, b"\1"), (30, b"\1")),
        "backslash": patched(good, (first + 53, b"\\"), (37, b"\\")),
        "not utf-8": patched(good, (first + 46, b"\xff"), (30, b"\xff")),
    }
    weightstore.open(good)
    passed = []
    for name, data in cases.items():
        try:
            weightstore.open(data)
        except FormatError:
            continue
        passed.append(name)
    assert passed == []


@pytest.mark.parametrize(
    "names",
    [
        ["archive/data.pkl", "archive/version", "archive/version"],
        ["archive/data.pkl", "archive/version", "other/version"],
        ["data.pkl", "version"],
        ["archive/data.pkl"],
        ["archive/data.pkl", "archive/version", "archive/../x"],
        ["archive/data.pkl", "archive/version", "/x"],
        ["archive/data.pkl", "archive/version", "archive//x"],
        ["archive/data.pkl", "archive/version", "archive/dir/"],
        ["archive/data.pkl", "archive/version", "archive/constants.pkl"],
        ["archive/version"],
        [],
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_of_records(names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name in names:
            file.writestr(name, b"\x80\x02}." if name.endswith("data.pkl") else b"3\n")
    with pytest.raises(FormatError):
        weightstore.open(stream.getvalue())


@pytest.mark.parametrize("text", [b"", b"0", b"11", b"x", b"3\n\n", b"-1", b"3" * 100])
def test_versions(text):
    refused(archive(b"\x80\x02}.", version=text), "version")


@pytest.mark.parametrize("text", [b"", b"Little", b"big\n", b"little" * 20])
def test_byte_orders(text):
    refused(archive(b"\x80\x02}.", byteorder=text), "byteorder")


def test_a_zip_bomb_is_refused_before_it_grows():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02" + bytes(32 << 20))
        file.writestr("archive/version", "3\n")
    data = stream.getvalue()
    assert len(data) < 40_000
    first = entries(data)[0]
    huge = struct.pack("<I", 0xF0000000)
    refused(patched(data, (first + 24, huge), (22, huge)), "limit", LimitError)
    large = struct.pack("<I", 200 << 20)
    refused(patched(data, (first + 24, large), (22, large)), "may take", LimitError)
    refused(data, "may take", LimitError)


def deflated(**records: bytes) -> bytes:
    """Records that are said to hold what they inflate to, by name; what they hold in the file is given."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in records.items():
            file.writestr("archive/" + name.replace("_", "."), content)
    data = stream.getvalue()
    for at, name in zip(entries(data), records, strict=True):
        inflated = zlib.decompressobj(-15).decompress(records[name])
        local = struct.unpack_from("<I", data, at + 42)[0]
        facts = struct.pack("<I", zlib.crc32(inflated)), struct.pack("<I", len(inflated))
        changes = [(at + 10, b"\x08"), (at + 16, facts[0]), (at + 24, facts[1])]
        changes += [(local + 8, b"\x08"), (local + 14, facts[0]), (local + 22, facts[1])]
        data = patched(data, *changes)
    return data


def raw_deflate(content: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    return compressor.compress(content) + compressor.flush()


def test_compressed_records_neither_grow_nor_shrink_beyond_measure():
    version, pickle = raw_deflate(b"3\n"), raw_deflate(b"\x80\x02}.")
    assert len(weightstore.open(deflated(data_pkl=pickle, version=version))) == 0
    empty_blocks = bytes.fromhex("000000ffff") * 10_000
    refused(deflated(data_pkl=pickle, version=empty_blocks + version), "far larger")
    bomb = raw_deflate(b"\x80\x02X" + struct.pack("<I", 32 << 20) + bytes(32 << 20) + b".")
    refused(deflated(data_pkl=bomb, version=version), "may take", LimitError)


def test_a_tensor_over_four_gibibytes_in_a_sparse_file(tmp_path):
    """ZIP64: sizes and offsets that take more than 32 bits, written by torch without their contents."""
    path = tmp_path / "large.pt"
    with torch.serialization.skip_data():
        torch.save(
            {"large": torch.empty(5 << 30, dtype=torch.uint8), "after": torch.empty(3), "large2": torch.empty(2 << 30)},
            path,
        )
    assert path.stat().st_blocks * 512 < 1 << 24
    with weightstore.open(path) as file:
        assert file["large"].shape == (5 << 30,)
        assert file["large"][-5:].numpy().tolist() == [0] * 5
        assert file["after"].numpy().tolist() == [0.0] * 3
        assert file["large2"].nbytes == 8 << 30
