"""The file formats, as the core's registry lists them. The package keeps no list of its own."""

from __future__ import annotations

import os
from typing import Literal

from .. import _core

FORMATS = {format.name: format for format in _core.FORMATS}
INDEX = next(format.name for format in _core.FORMATS if format.is_index)
INDEXED = "safetensors"  # the format of the files that an index names
INDEX_ENDING = FORMATS[INDEX].endings[0]


def title_of(format: str) -> str:
    """The name that people write: "SafeTensors" for "safetensors"."""
    return FORMATS[format].title


def format_of_files(format: str) -> str:
    """The format of the files that hold the tensors: for an index, that of the files it names."""
    return INDEXED if FORMATS[format].is_index else format


def format_to_write(path: str) -> str:
    """The format that the ending of a name asks for. Raises InvalidArgument for an unknown ending, and for that of a format
    that is only read."""
    named = _named(path)
    if named is not None and named.writable:
        return named.name
    # The core says what is wrong. It takes names in UTF-8; files may have others.
    return _core.format_of_name(os.path.basename(path).encode("utf-8", "replace").decode())


def format_to_save(path: str) -> str:
    """The same for the save verbs: a name without an ending, or with an unknown one, is SafeTensors."""
    return INDEXED if _named(path) is None else format_to_write(path)


def _named(path: str) -> _core.Format | None:
    """The format whose ending a name has."""
    name = os.path.basename(path).lower()
    for format in FORMATS.values():
        if any(name.endswith(ending) and name != ending for ending in format.endings):
            return format
    return None


def endings(*, writable: bool = False) -> str:
    """The endings of all formats, or of those that can be written, for people: ".bpk, .pt or .safetensors"."""
    found = [ending for format in FORMATS.values() if format.writable or not writable for ending in format.endings]
    return f"{', '.join(found[:-1])} or {found[-1]}"


def ending_that_holds(what: Literal["param_ids", "scalars"]) -> str:
    """The ending of a format that is written and holds such things."""
    return next(f.endings[0] for f in FORMATS.values() if f.writable and getattr(f, f"has_{what}"))
