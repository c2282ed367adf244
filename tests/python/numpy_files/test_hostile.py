"""Files of numpy that were damaged, or made to harm."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest

import weightstore
from support.zip_archives import entries, patched
from weightstore.errors import FormatError, LimitError


def saved(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def zipped(members, method=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def test_object_arrays_are_refused_and_nothing_is_unpickled():
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    data = npy(np.array([Trap()], dtype=object))
    for file in (data, zipped([("a.npy", data)]), zipped([("a.npy", data)], zipfile.ZIP_DEFLATED)):
        with pytest.raises(FormatError, match="object array"):
            weightstore.open(file)
    with weightstore.open(zipped([("a.npy", data), ("b.npy", npy(np.ones(2)))]), opaque="skip") as file:
        assert list(file) == ["b"]


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.array(["a"]), "strings"),
        (np.array([b"a"]), "strings"),
        (np.zeros(1, "M8[s]"), "dates"),
        (np.zeros(1, "m8[s]"), "dates"),
        (np.zeros(1, [("a", "f4")]), "structured"),
        (np.zeros(1, "V3"), "raw bytes"),
        (np.zeros(1, np.longdouble), "long doubles"),
        (np.zeros(1, np.clongdouble), "long doubles"),
    ],
)
def test_arrays_that_are_no_numbers_are_refused_by_name(array, words):
    with pytest.raises(FormatError, match=words) as caught:
        weightstore.open(saved(name=array))
    assert caught.value.tensor == "name"
    with pytest.raises(FormatError, match=words):
        weightstore.open(npy(array))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_cut_at_any_byte_a_file_is_refused(save):
    file = io.BytesIO()
    save(file, a=np.arange(3, dtype="i2"), b=np.ones((2, 2), order="F"))
    data = file.getvalue()
    for size in range(len(data)):
        with pytest.raises(FormatError):
            weightstore.open(data[:size])
    array = npy(np.arange(3))
    for size in range(len(array)):
        with pytest.raises(FormatError):
            weightstore.open(array[:size])


def test_a_byte_that_was_changed_is_an_error_or_changes_nothing_else():
    data = saved(a=np.arange(3, dtype="i2"), b=np.ones((2, 2), order="F"))
    for at in range(len(data)):
        changed = patched(data, (at, bytes([data[at] ^ 0x41])))
        try:
            with weightstore.open(changed, verify="full") as file:
                assert file["a"].numpy().tolist() == [0, 1, 2]
        except FormatError:
            continue


def test_archives_that_two_readers_could_see_differently_are_refused():
    good = saved(a=np.arange(3), b=np.arange(4))
    first, second = entries(good)[:2]
    local = struct.unpack_from("<I", good, second + 42)[0]
    cases = {
        "encrypted": patched(good, (first + 8, b"\1\0"), (6, b"\1\0")),
        "local name": patched(good, (30, b"x")),
        "overlap": patched(good, (second + 42, struct.pack("<I", local - 1))),
        "size": patched(good, (first + 20, struct.pack("<II", 1, 1))),
        "offset": patched(good, (first + 42, b"\1")),
        "prefix": b"x" + good,
        "behind": good + b"x",
    }
    for data in cases.values():
        with pytest.raises(FormatError):
            weightstore.open(data)


@pytest.mark.parametrize("name", ["../a.npy", "/a.npy", "a//b.npy", "a\\b.npy", "a\n.npy"])
def test_names_that_are_no_paths_inside_the_archive_are_refused(name):
    with pytest.raises(FormatError):
        weightstore.open(zipped([(name, npy(np.ones(1)))]))


def test_duplicated_names_are_refused():
    with pytest.warns(UserWarning, match="Duplicate"):
        data = zipped([("a.npy", npy(np.ones(1))), ("a.npy", npy(np.zeros(1)))])
    with pytest.raises(FormatError, match="two records"):
        weightstore.open(data)


def header(text, data=b"", version=1):
    text = text.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


@pytest.mark.parametrize(
    "shape", ["(99999999999,)", "(4294967296, 4294967296)", "(-1,)", "(3, -4)", "(18446744073709551615,)"]
)
@pytest.mark.parametrize("deflated", [False, True])
def test_shapes_that_the_file_has_no_bytes_for_are_refused(shape, deflated):
    data = header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}", bytes(24))
    with pytest.raises(FormatError):
        weightstore.open(zipped([("a.npy", data)], zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED))
    with pytest.raises(FormatError):
        weightstore.open(data)


def test_a_header_longer_than_the_file_is_refused():
    for version in (1, 2, 3):
        text = "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"
        data = bytearray(header(text, bytes(8), version))
        data[8:10] = b"\xff\xff"
        with pytest.raises(FormatError):
            weightstore.open(bytes(data))


def test_a_member_that_says_another_size_than_its_header_is_refused():
    array = npy(np.arange(10, dtype="u1"))
    for data in (array + b"x", array[:-1]):
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with pytest.raises(FormatError, match="bytes"):
                weightstore.open(zipped([("a.npy", data)], method))


def test_a_bomb_that_inflates_to_more_than_it_says_ends_at_what_it_says():
    array = npy(np.zeros(1000, "u1"))
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(array + bytes(50_000_000)) + packer.flush()
    data = bytearray(zipped([("a.npy", array)], zipfile.ZIP_DEFLATED))
    # The same archive with the longer stream in place of the right one.
    old = struct.unpack_from("<I", data, entries(bytes(data))[0] + 20)[0]
    begin = 30 + len("a.npy")
    data[begin : begin + old] = bomb
    entry = bytes(data).index(b"PK\1\2")
    struct.pack_into("<I", data, 18, len(bomb))
    struct.pack_into("<I", data, entry + 20, len(bomb))
    struct.pack_into("<I", data, bytes(data).index(b"PK\5\6") + 16, entry)
    with pytest.raises(FormatError), weightstore.open(bytes(data)) as file:
        file.load()


def test_limits_are_named():
    data = saved(a=np.ones(3), b=np.ones(3))
    with pytest.raises(LimitError, match="records"):
        weightstore.open(data, limits={"zip_records": 1})
    with pytest.raises(weightstore.errors.InvalidArgument, match="no limit 'records'"):
        weightstore.open(data, limits={"records": 1})
    for value in (-1, 1.5, "1", True, 1 << 64):
        with pytest.raises(weightstore.errors.InvalidArgument, match="zip_records"):
            weightstore.open(data, limits={"zip_records": value})
    with pytest.raises(weightstore.errors.InvalidArgument, match="at most 1000"):
        weightstore.open(data, limits={"pytorch_depth": 1001})
    assert len(weightstore.open(io.BytesIO(data), limits={"zip_records": 2})) == 2
