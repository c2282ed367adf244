"""Places in ZIP archives, and changes to them."""

from __future__ import annotations


def entries(data: bytes) -> list[int]:
    """Where the directory's entries are."""
    found, at = [], data.index(b"PK\1\2")
    while at >= 0:
        found.append(at)
        at = data.find(b"PK\1\2", at + 1)
    return found


def patched(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    result = bytearray(data)
    for at, content in changes:
        result[at : at + len(content)] = content
    return bytes(result)
