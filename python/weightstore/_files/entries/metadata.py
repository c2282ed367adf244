"""Metadata of GGUF files, whose values have types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ... import _core, errors


class GgufValue(NamedTuple):
    """A value of GGUF's metadata, and its type: `GgufValue(32, "UINT64")`, `GgufValue([], "ARRAY[STRING]")`.

    Types are UINT8, INT8, UINT16, INT16, UINT32, INT32, UINT64, INT64, FLOAT32, FLOAT64, BOOL, STRING, and ARRAY[...] of one.
    """

    value: Any
    type: str


class Metadata(Mapping[str, Any]):
    """The metadata of a GGUF file, in its order: keys to ints, floats, booleans, text and lists of these.

    A value is decoded when it is asked for, each time, so that the vocabulary of a tokenizer costs nothing until it is used.
    Bytes of a text that are not UTF-8 become lone surrogates, as in os.fsdecode(). The mapping outlives the file.
    """

    __slots__ = ("_core", "_numbers")

    def __init__(self, core: _core.TypedMetadata) -> None:
        self._core = core
        self._numbers = {key: number for number, key in enumerate(core.keys())}

    def __getitem__(self, key: str) -> Any:
        return self._core.value(self._numbers[key])

    def __contains__(self, key: object) -> bool:
        return key in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def type_of(self, key: str) -> str:
        """The type in the file: "UINT32", "STRING", "ARRAY[STRING]", ..."""
        return self._core.type(self._numbers[key])

    def typed(self) -> dict[str, GgufValue]:
        """All values with their types, to be changed and saved: `{**file.metadata.typed(), "general.name": "mine"}`."""
        return {key: GgufValue(self[key], self.type_of(key)) for key in self}

    def __repr__(self) -> str:
        return f"<Metadata of {len(self)} entries>"

    def __reduce__(self) -> Any:
        # As a file without tensors: that also keeps the types of arrays within arrays, of which type_of() names the first.
        writer = _core.Writer()
        writer.set_typed_metadata(self._core)
        return _read_again, (writer.write_bytes("gguf"),)


def metadata_of(reader: _core.Reader) -> Mapping[str, Any]:
    """The metadata of a file: typed where the format has types, else texts; empty when there is none."""
    typed = reader.typed_metadata()
    return Metadata(typed) if typed is not None else reader.metadata() or {}


def brief(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata to be shown: of a list, what it is and how long."""
    if not isinstance(metadata, Metadata):
        return dict(metadata)
    values = ((key, metadata[key]) for key in metadata)
    return {
        key: f"{metadata.type_of(key)} of {len(value)}" if isinstance(value, list) else value for key, value in values
    }


def _read_again(file: bytes) -> Mapping[str, Any]:
    return metadata_of(_core.Reader.open_buffer(file))


def core_metadata(metadata: Mapping[str, Any]) -> _core.TypedMetadata:
    """Values for a GGUF file. A value tells its type unless it is a GgufValue: docs/formats.md, "GGUF metadata", has the rules.
    Scalars and arrays of numpy have the types of their elements."""
    if isinstance(metadata, Metadata):
        return metadata._core
    entries = []
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise TypeError(f"keys of metadata are str, not {key!r}")
        entries.append((key, *_type_and_value(value)))
    return _core.TypedMetadata(entries)


_OF_NUMPY = {
    "bool": "BOOL",
    "float32": "FLOAT32",
    "float64": "FLOAT64",
    **{f"{sign}int{bits}": f"{sign}INT{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def _type_and_value(value: Any) -> tuple[str | None, Any]:
    if isinstance(value, GgufValue):
        return value.type, value.value
    if not hasattr(value, "dtype") or not hasattr(value, "tolist"):
        return None, value
    name = _OF_NUMPY.get(str(value.dtype))
    if name is None or len(value.shape) > 1:
        text = f"an array of {value.dtype} with {len(value.shape)} dimensions is no value of GGUF's metadata"
        raise errors.make("invalid_argument", text)
    return (f"ARRAY[{name}]" if value.shape else name), value.tolist()
