"""Sizes as people write them."""

from __future__ import annotations

import re

from .. import errors

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", re.IGNORECASE)

DEFAULT_SHARD_SIZE = "5GB"


def parse_size(size: int | str) -> int:
    """Bytes: a number, or text such as "5GB" or "500 MB" (powers of ten, as Hugging Face's tools count)."""
    if isinstance(size, int):
        value = size
    else:
        match = _FORM.fullmatch(size)
        if match is None:
            raise errors.make(
                "invalid_argument", f"{size!r} is not a size; write it as a number or as '5GB', '500MB', ..."
            )
        number, unit = match.groups()
        value = int(float(number) * _UNITS[unit.upper()]) if "." in number else int(number) * _UNITS[unit.upper()]
    if value <= 0:
        raise errors.make("invalid_argument", f"a size of {size!r} holds nothing")
    return value


def format_size(size: int) -> str:
    """Short text for people: "1.2 MB"."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
