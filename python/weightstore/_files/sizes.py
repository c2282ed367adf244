"""Sizes in bytes, as people write and read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import index

from .. import errors

Size = int | float | str
"""Bytes: a whole number (400e6 is one), or text such as "400MB" or "400MiB"."""

DEFAULT_SHARD_SIZE: Size = "5GB"

_UNITS = ("", "K", "M", "G", "T")
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(I?))?B?\s*", re.IGNORECASE)
_LARGEST = 2**63 - 1
_WANTED = "must be a whole number of bytes, or text such as '400MB' or '400MiB'"


def parse_size(size: Size, what: str, *, least: int = 1) -> int:
    """Bytes, from a number or from text: "5GB" and "500 MB" count in powers of 1000, "5GiB" in powers of 1024.

    what: the name of the argument, for the error. Raises InvalidArgument for text that is not a size, and for fewer than
    `least` bytes; TypeError for anything that is neither text nor a whole
    number.
    """
    value = _from_text(size, what) if isinstance(size, str) else _from_number(size, what)
    if not least <= value <= _LARGEST:
        raise errors.make("invalid_argument", f"{what} must be from {least} to {_LARGEST} bytes, not {size!r}")
    return value


def parse_limits(limits: Mapping[str, Size] | None) -> Mapping[str, int] | None:
    """`limits` with every limit of bytes as a number. The core checks names and numbers."""
    if limits is None:
        return None
    return {
        name: parse_size(value, f"limits: '{name}'", least=0)
        if isinstance(value, str) and str(name).endswith("_bytes")
        else value  # type: ignore[misc]
        for name, value in limits.items()
    }


def _from_text(text: str, what: str) -> int:
    match = _FORM.fullmatch(text)
    if match is None:
        raise errors.make("invalid_argument", f"{what} {_WANTED}, not {text!r}")
    number, unit, binary = match.groups()
    factor = (1024 if binary else 1000) ** _UNITS.index((unit or "").upper())
    return int(float(number) * factor) if "." in number else int(number) * factor


def _from_number(number: object, what: str) -> int:
    try:
        if isinstance(number, float) and number.is_integer():
            return int(number)  # such as 400e6
        if not isinstance(number, bool):
            return index(number)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise TypeError(f"{what} {_WANTED}, not {number!r}")


def format_size(size: int) -> str:
    """Short text for people: "1.2 MB"."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
