"""The beginning of a file, byte by byte, with each field named."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..errors import make
from .output import print_json, safe, table

_HEAD = 1 << 16
_SHOWN = 32  # bytes of a long field


class Field(NamedTuple):
    """offset, data: where the field is, and its bytes as far as they were read. size: the bytes that it has.
    name: what the field is. meaning: its value."""

    offset: int
    size: int
    data: bytes
    name: str
    meaning: str


def print_hexdump(path: str, as_json: bool) -> int:
    from .._files.paths import check_local

    check_local(path, "open")
    with open(path, "rb") as file:
        head = file.read(_HEAD)
        size = file.seek(0, 2)
    fields = list(fields_of(head, size))
    if not fields:
        raise make("unsupported", "no format is recognised, so that no field has a name", path=path)
    if as_json:
        print_json([{**field._asdict(), "data": field.data.hex()} for field in fields])
        return 0
    rows = []
    for field in fields:
        first, *others = [field.data[i : i + 8] for i in range(0, min(len(field.data), _SHOWN), 8)] or [b""]
        rows.append((f"{field.offset:08x}", first.hex(" "), _ascii(first), field.name, safe(field.meaning, 80)))
        rows += [
            (f"{field.offset + 8 * i:08x}", part.hex(" "), _ascii(part), "", "") for i, part in enumerate(others, 1)
        ]
        if field.size > _SHOWN:
            rows.append(("", f"... {field.size - _SHOWN} more bytes", "", "", ""))
    sys.stdout.write(table(rows))
    return 0


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


class _Cursor:
    """Takes fields one after the other from what was read of a file."""

    def __init__(self, head: bytes, size: int) -> None:
        self.head = head
        self.size = size
        self.at = 0

    def number(self, form: str, name: str, say: Callable[[int], str] = str) -> tuple[Field, int]:
        """A number: `form` is struct's letter, little-endian. A file that ends before it has 0."""
        data = self.head[self.at : self.at + struct.calcsize("<" + form)]
        value = int.from_bytes(data, "little")
        return self._field(len(data), name, say(value)), value

    def bytes(self, size: int, name: str, meaning: str = "") -> Field:
        """Bytes, or what the file has of them."""
        data = self.head[self.at : self.at + size]
        there = min(size, max(self.size - self.at, 0))
        if there < size:
            meaning = f"{meaning}; " * bool(meaning) + f"the file ends after {there} of {size} bytes"
        return self._field(there, name, meaning or repr(data[:24])[1:])

    def _field(self, size: int, name: str, meaning: str) -> Field:
        field = Field(self.at, size, self.head[self.at : self.at + size], name, meaning)
        self.at += size
        return field


def fields_of(head: bytes, size: int) -> Iterator[Field]:
    """The fields at the beginning of a file of `size` bytes, of which `head` was read. None for an unknown format."""
    cursor = _Cursor(head, size)
    if head[:4] == b"NRUB":
        yield from _burnpack(cursor)
    elif head[:4] == b"GGUF":
        yield from _gguf(cursor)
    elif head[:6] == b"\x93NUMPY":
        yield from _npy(cursor)
    elif head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        yield from _zip(cursor)
    elif head[257:262] == b"ustar":
        yield from _tar(cursor)
    elif head[:1] == b"\x80" and 2 <= head[1] <= 5:
        yield from _pickle(cursor)
    elif head[8:9] == b"{":
        yield from _safetensors(cursor)
    elif head.lstrip()[:1] == b"{":
        yield cursor.bytes(size, "JSON", "the index of a set of shards")


def _safetensors(cursor: _Cursor) -> Iterator[Field]:
    length, header = cursor.number("Q", "length of the header", lambda n: f"{n} bytes")
    yield length
    text = cursor.head[8 : 8 + header]
    padding = len(text) - len(text.rstrip(b" ")) if len(text) == header else 0
    yield cursor.bytes(header - padding, "header", "JSON: names, types, shapes and offsets of the tensors")
    if padding:
        yield cursor.bytes(padding, "padding", "spaces, which belong to the header")
    yield cursor.bytes(max(cursor.size - cursor.at, 0), "data", "the tensors; offsets in the header count from here")


def _burnpack(cursor: _Cursor) -> Iterator[Field]:
    yield cursor.bytes(4, "magic", "NRUB: the letters of BURN as a little-endian number")
    version, _ = cursor.number("H", "version")
    yield version
    length, metadata = cursor.number("I", "length of the metadata", lambda n: f"{n} bytes")
    yield length
    yield cursor.bytes(metadata, "metadata", "CBOR: names, types, shapes and offsets of the tensors")
    gap = -cursor.at % 256
    if cursor.size > cursor.at + gap:
        if gap:
            yield cursor.bytes(gap, "padding", "up to a multiple of 256")
        yield cursor.bytes(
            cursor.size - cursor.at, "data", "the tensors, each at a multiple of 256; offsets count from here"
        )


def _gguf(cursor: _Cursor) -> Iterator[Field]:
    yield cursor.bytes(4, "magic", "GGUF")
    yield cursor.number("I", "version")[0]
    yield cursor.number("Q", "number of tensors")[0]
    yield cursor.number("Q", "number of metadata entries")[0]
    length, key = cursor.number("Q", "length of the first key", lambda n: f"{n} bytes")
    yield length
    yield cursor.bytes(min(key, _SHOWN), "first key")


def _npy(cursor: _Cursor) -> Iterator[Field]:
    yield cursor.bytes(6, "magic", "\\x93NUMPY")
    version, number = cursor.number("B", "version")
    yield version
    yield cursor.number("B", "minor version")[0]
    length, header = cursor.number("H" if number == 1 else "I", "length of the header", lambda n: f"{n} bytes")
    yield length
    yield cursor.bytes(header, "header", cursor.head[cursor.at : cursor.at + header].decode("latin-1").strip())
    yield cursor.bytes(max(cursor.size - cursor.at, 0), "data", "the elements")


def _zip(cursor: _Cursor) -> Iterator[Field]:
    """The local headers of the first members."""
    while cursor.head[cursor.at : cursor.at + 4] == b"PK\x03\x04" and cursor.at + 30 <= len(cursor.head):
        yield cursor.bytes(4, "magic", "PK 3 4: a member of a ZIP archive")
        yield cursor.number("H", "version needed")[0]
        yield cursor.number("H", "flags", lambda n: f"{n:#06x}")[0]
        yield cursor.number("H", "method", lambda n: {0: "0, stored", 8: "8, deflated"}.get(n, str(n)))[0]
        yield cursor.bytes(4, "time and date")
        yield cursor.number("I", "CRC-32", lambda n: f"{n:#010x}")[0]
        field, stored = cursor.number("I", "stored size", lambda n: f"{n} bytes")
        yield field
        yield cursor.number("I", "size", lambda n: f"{n} bytes")[0]
        field, name = cursor.number("H", "length of the name")
        yield field
        field, extra = cursor.number("H", "length of the extra field")
        yield field
        yield cursor.bytes(name, "name", cursor.head[cursor.at : cursor.at + name].decode("utf-8", "replace"))
        if extra:
            yield cursor.bytes(extra, "extra field", "torch.save pads here, so that the data is aligned")
        if stored in (0, 0xFFFFFFFF):  # the size follows the data, or is in the extra field
            return
        yield cursor.bytes(stored, "data of the member", "")


def _tar(cursor: _Cursor) -> Iterator[Field]:
    for size, name in (
        (100, "name"),
        (8, "mode"),
        (8, "owner"),
        (8, "group"),
        (12, "size, in octal"),
        (12, "time"),
        (8, "checksum"),
    ):
        yield cursor.bytes(size, name, cursor.head[cursor.at : cursor.at + size].rstrip(b"\0 ").decode("latin-1"))
    yield cursor.bytes(1, "type")
    yield cursor.bytes(100, "link")
    yield cursor.bytes(8, "magic", "ustar: a member of a tar archive")


def _pickle(cursor: _Cursor) -> Iterator[Field]:
    yield cursor.bytes(1, "PROTO", "a pickle begins")
    yield cursor.number("B", "protocol")[0]
    yield cursor.bytes(max(cursor.size - cursor.at, 0), "opcodes", "pickles of torch.save; they are read, never run")
