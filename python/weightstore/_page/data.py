"""What the viewer shows, as JSON: the format of docs/page.md. `viewer/data.schema.json` is its schema."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from .. import _core

VERSION = 1
# Metadata can be a whole tokenizer; a page has the beginning of it.
LONGEST_TEXT = 20_000
MOST_ENTRIES = 10_000
_LARGEST_EXACT = 2**53 - 1

Json = dict[str, Any]


def page_data(files: Iterable[Json], differences: Json | None = None) -> Json:
    """The data of a page about one file, or about two that are compared."""
    data: Json = {
        "format": "weightstore-page",
        "version": VERSION,
        "generator": f"weightstore {_core.__version__}",
        "files": list(files),
    }
    if differences is not None:
        data["differences"] = differences
    return data


def file_data(reader: _core.Reader, path: str, format: str) -> Json:
    """What the headers of a file say. path: its name on the page. format: the format's name for people.

    The tensors are sorted by name: number i of the columns is `sorted_numbers(reader)[i]`.
    """
    numbers = sorted_numbers(reader)
    rows = reader.describe_many(numbers)
    dtypes = sorted({dtype for _, dtype, _, _ in rows})
    place = {dtype: i for i, dtype in enumerate(dtypes)}
    tensors: Json = {
        "name": [name for name, _, _, _ in rows],
        "dtype": [place[dtype] for _, dtype, _, _ in rows],
        "shape": [[whole(size) for size in shape] for _, _, shape, _ in rows],
        "bytes": [whole(nbytes) for _, _, _, nbytes in rows],
    }
    data: Json = {
        "path": path,
        "format": format,
        "metadata": _texts(reader.metadata() or {}),
        "scalars": _texts(reader.scalars()),
        "left_out": [
            {"name": _short(name), "type": _short(type), "reason": _short(reason)}
            for name, type, reason in islice(reader.left_out(), MOST_ENTRIES)
        ],
        "dtypes": dtypes,
        "tensors": tensors,
    }
    sources = [reader.source_of(number) for number in numbers]
    if len(shards := sorted(set(sources))) > 1:
        places = {shard: i for i, shard in enumerate(shards)}
        data["shards"] = [os.path.basename(shard) for shard in shards]
        tensors["shard"] = [places[source] for source in sources]
    ids = [reader.param_id(number) for number in numbers]
    if any(id is not None for id in ids):
        tensors["param_id"] = [None if id is None else str(id) for id in ids]
    return data


def sorted_numbers(reader: _core.Reader) -> list[int]:
    """The numbers of all tensors, in the order of their names."""
    return [reader.at(name) for name in reader.names()]


def whole(number: int) -> int | str:
    """A whole number as JavaScript can read it: one that it would round is text."""
    return number if abs(number) <= _LARGEST_EXACT else str(number)


def real(number: float) -> float | str:
    """A number as JSON can hold it: "NaN", "Infinity" and "-Infinity" are text."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _texts(entries: Mapping[str, object]) -> dict[str, str]:
    texts = {_short(key): _short(str(value)) for key, value in islice(entries.items(), MOST_ENTRIES)}
    if len(entries) > MOST_ENTRIES:
        texts["…"] = f"and {len(entries) - MOST_ENTRIES} more"
    return texts


def _short(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]} … ({len(text)} characters in all)"
