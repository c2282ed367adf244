"""Files that are damaged, or made to do harm: each is refused, with the place and the reason."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest

import weightstore
from support.gguf_files import TYPE, VALUE, array, entry, file, random_blocks, tensor, text, u32, write

HUGE = 2**64 - 1
W = tensor("w", [4], TYPE.F32, 0)
DATA = bytes(64)

REFUSED = {
    "only the signature": (b"GGUF", "at least 24 bytes; this one has 4"),
    "version 1": (file(version=1), "version 1 of GGUF; versions 2 and 3"),
    "version 4": (file(version=4), "version 4 of GGUF"),
    "version 0": (file(version=0), "version 0 of GGUF"),
    "more tensors than bytes": (file(counts=(HUGE, 0)), f"{HUGE} tensors"),
    "more entries than bytes": (file(counts=(0, HUGE)), f"{HUGE} metadata entries"),
    "one tensor too many": (file((), [W], counts=(3, 0), data=DATA), "the file ends|bytes follow|cut short"),
    "key of 2^64 bytes": (file([struct.pack("<Q", HUGE)], counts=(0, 1), data=DATA), "cut short"),
    "key of 70,000 bytes": (file([u32("k" * 70_000, 1)]), "longer than 65535 bytes"),
    "NUL in a key": (file([u32("a\0b", 1)]), "has a NUL"),
    "key that is not UTF-8": (file([u32(b"a\xff", 1)]), "is not UTF-8"),
    "same key twice": (file([u32("a", 1), u32("b", 1), u32("a", 2)]), "'a' is given twice"),
    "type of value 13": (file([entry("a", 13, b"")]), "'a': a value has the type 13"),
    "text beyond the file": (file([entry("a", VALUE.STRING, struct.pack("<Q", HUGE))], data=DATA), "cut short"),
    "array of 2^64 numbers": (file([entry("a", VALUE.ARRAY, array(VALUE.UINT64, HUGE, b""))], data=DATA), "bytes follow"),
    "array of 2^61 numbers": (file([entry("a", VALUE.ARRAY, array(VALUE.UINT64, 2**61, b""))], data=DATA), "bytes follow"),
    "array of 2^64 texts": (file([entry("a", VALUE.ARRAY, array(VALUE.STRING, HUGE, b""))], data=DATA), "bytes follow"),
    "array of 2^64 arrays": (file([entry("a", VALUE.ARRAY, array(VALUE.ARRAY, HUGE, b""))], data=DATA), "bytes follow"),
    "array of type 99": (file([entry("a", VALUE.ARRAY, array(99, 1, b""))], data=DATA), "type 99"),
    "arrays 100 deep": (
        file([entry("a", VALUE.ARRAY, array(VALUE.ARRAY, 1, b"") * 100 + array(VALUE.INT8, 1, b"\0"))]),
        "nested more than 8 deep",
    ),
    "alignment 0": (file([u32("general.alignment", 0)], [W], DATA), "alignment is 0; it is a power of two"),
    "alignment 24": (file([u32("general.alignment", 24)], [W], DATA), "alignment is 24; it is a power of two"),
    "alignment of 64 bits": (
        file([entry("general.alignment", VALUE.UINT64, struct.pack("<Q", 32))], [W], DATA),
        "alignment is a UINT32; here it is UINT64",
    ),
    "alignment beyond the file": (file([u32("general.alignment", 2**31)], [W], DATA), "end beyond the file"),
    "name of 2^64 bytes": (file((), [struct.pack("<Q", HUGE)], DATA, counts=(1, 0)), "cut short"),
    "NUL in a name": (file((), [tensor("a\0b", [4], TYPE.F32, 0)], DATA), "NUL"),
    "name that is not UTF-8": (file((), [tensor(b"\xff", [4], TYPE.F32, 0)], DATA), "UTF-8"),
    "same name twice": (file((), [W, tensor("w", [4], TYPE.F32, 32)], DATA), "the name is given twice"),
    "2^32 dimensions": (file((), [text("w") + struct.pack("<I", 2**32 - 1)], DATA, counts=(1, 0)), "cut short"),
    "100,000 dimensions": (file((), [tensor("w", [1] * 100_000, TYPE.F32, 0)], DATA), "dimensions; the limit is 65536"),
    "dimensions whose product overflows": (file((), [tensor("w", [2**32] * 3, TYPE.F32, 0)], DATA), "too large"),
    "size near 2^64": (file((), [tensor("w", [2**59 - 1], TYPE.F32, 32)], DATA), "end beyond the file"),
    "blocks near 2^64": (file((), [tensor("w", [2**63], TYPE.Q8_0, 0)], DATA), "too large|end beyond the file"),
    "offset near 2^64": (file((), [tensor("w", [4], TYPE.F32, 2**64 - 32)], DATA), "end beyond the file"),
    "offset that is not aligned": (file((), [tensor("w", [4], TYPE.F32, 4)], DATA), "not a multiple of the alignment 32"),
    "data beyond the file": (file((), [tensor("w", [17], TYPE.F32, 0)], DATA), "end beyond the file"),
    "overlap": (file((), [tensor("v", [12], TYPE.F32, 0), tensor("w", [4], TYPE.F32, 32)], bytes(96)), "'v' end at"),
    "type 4, which was removed": (file((), [tensor("w", [32], 4, 0)], DATA), "its type has the number 4"),
    "type 2^32 - 1": (file((), [tensor("w", [32], 2**32 - 1, 0)], DATA), "its type has the number 4294967295"),
    "rows that are not blocks": (file((), [tensor("w", [33], TYPE.Q4_0, 0)], DATA), "not whole blocks of 32"),
    "a block as a scalar": (file((), [tensor("w", [], TYPE.Q4_0, 0)], DATA), "not whole blocks of 32"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, tmp_path):
    data, message = REFUSED[case]
    with pytest.raises((weightstore.FormatError, weightstore.StoreError), match=message) as caught:
        weightstore.open(data)
    assert len(str(caught.value)) < 1500
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(weightstore.StoreError, match="m.gguf"):
        weightstore.open(path)


def test_truncation_at_every_byte(tmp_path):
    path = tmp_path / "m.gguf"
    write(
        path, {"a": np.arange(8, dtype=np.float32), "q": random_blocks(TYPE.Q8_0, 1, 1)}, {"q": TYPE.Q8_0}, key="text"
    )
    whole = path.read_bytes()
    padding = -(34) % 32  # behind the last tensor, which nobody needs
    for length in range(len(whole)):
        if length >= len(whole) - padding:
            assert len(weightstore.open(whole[:length])) == 2
            continue
        with pytest.raises(weightstore.StoreError):
            weightstore.open(whole[:length])


def test_every_byte_changed(tmp_path):
    """Any change is refused, or gives tensors inside the file."""
    whole = file([u32("a", 1)], [tensor("w", [32], TYPE.Q8_0, 0)], bytes(34))
    for at in range(len(whole)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            changed = whole[:at] + bytes([value]) + whole[at + 1 :]
            try:
                found = weightstore.open(changed)
            except weightstore.StoreError:
                continue
            for name in found:
                assert len(found[name].bytes()) == found[name].nbytes <= len(whole)


def test_a_header_has_a_limit():
    data = file([entry("a", VALUE.STRING, text("x" * 10_000))])
    assert len(weightstore.open(data)) == 0
    with pytest.raises(weightstore.LimitError, match="raise the limit 'gguf_header_bytes'"):
        weightstore.open(data, limits={"gguf_header_bytes": 5_000})


def test_a_sparse_file_of_empty_texts_ends_at_the_limit(tmp_path):
    """A terabyte of zeros is an array of empty texts, if the header says so."""
    path = tmp_path / "sparse.gguf"
    with open(path, "wb") as stream:
        stream.write(file([entry("a", VALUE.ARRAY, array(VALUE.STRING, 2**36, b""))], alignment=1))
        stream.truncate(2**40)
    tracemalloc.start()
    with pytest.raises(weightstore.LimitError, match="gguf_header_bytes"):
        weightstore.open(path, limits={"gguf_header_bytes": "4MiB"})
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_big_gguf_file_is_not_taken_for_safetensors(tmp_path):
    """Its first bytes are a length that a file of 14 GB has, and 123 tensors are an opening brace."""
    path = tmp_path / "big.gguf"
    with open(path, "wb") as stream:
        stream.write(b"GGUF" + struct.pack("<IQQ", 3, 123, 0))
        stream.truncate(14 * 2**30)
    with pytest.raises(weightstore.StoreError, match="the name is given twice|GGUF|not whole"):
        weightstore.open(path)
