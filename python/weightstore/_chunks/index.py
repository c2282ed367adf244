"""The index of a checkpoint: which tensors and objects there are, and where. It is written last."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import _core, errors

NAME = "weightstore.index.json"
VERSION = 1
LARGEST = 1 << 28  # bytes of an index that is read


@dataclass(slots=True)
class Chunk:
    """A box of a tensor that a file has as a tensor of its own, called `key`."""

    begin: tuple[int, ...]
    size: tuple[int, ...]
    file: str
    key: str


@dataclass(slots=True)
class StoredTensor:
    """dtype: the name in files. shape: as torch counts, which is in bytes where elements are smaller than a byte."""

    dtype: str
    shape: tuple[int, ...]
    chunks: list[Chunk] = field(default_factory=list)


@dataclass(slots=True)
class Index:
    layout: str
    save: str
    files: dict[str, int] = field(default_factory=dict)  # name to size
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    objects: dict[str, tuple[str, str]] = field(default_factory=dict)  # name to file and key
    paths: dict[str, tuple[str | int, ...]] | None = None  # name to its path in the nested state dict

    def encode(self) -> str:
        numbers = {name: number for number, name in enumerate(self.files)}

        def chunk(each: Chunk, name: str) -> list[Any]:
            place: list[Any] = [numbers[each.file], each.begin, each.size]
            return place if each.key == name else [*place, each.key]

        document = {
            "weightstore": {"version": VERSION, "layout": self.layout, "save": self.save},
            "files": self.files,
            "tensors": {
                name: {"dtype": it.dtype, "shape": it.shape, "chunks": [chunk(each, name) for each in it.chunks]}
                for name, it in self.tensors.items()
            },
            "objects": {name: [numbers[file], key] for name, (file, key) in self.objects.items()},
        }
        if self.paths is not None:
            document["paths"] = self.paths
        return json.dumps(document, separators=(",", ":")) + "\n"


def read(path: str) -> Index:
    """Reads and checks an index. Raises FormatError that names the file and what is wrong."""
    size = os.stat(path).st_size
    if size > LARGEST:
        raise errors.make("limit", f"the index has {size} bytes; at most {LARGEST} are read", path=path)
    with open(path, "rb") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"the index is no JSON: {error}") from None
    try:
        return _decode(document)
    except _Wrong as error:
        raise _corrupt(path, str(error)) from None


class _Wrong(Exception):
    pass


def _corrupt(path: str, message: str) -> errors.StoreError:
    return errors.make(
        "corrupt", f"{message}; the checkpoint was damaged, or this is no index of weightstore", path=path
    )


def _decode(document: Any) -> Index:
    head = _dict(_dict(document, "the index").get("weightstore"), "'weightstore'")
    if head.get("version") != VERSION:
        raise _Wrong(f"version {head.get('version')!r} of the index, and this release reads version {VERSION}")
    sizes = {_file_name(name): _count(size, f"size of '{name}'") for name, size in _items(document, "files")}
    names = list(sizes)
    index = Index(_text(head.get("layout"), "'layout'"), _text(head.get("save"), "'save'"), sizes)
    for name, entry in _items(document, "tensors"):
        index.tensors[name] = _tensor(name, _dict(entry, f"tensor '{name}'"), names)
    for name, entry in _items(document, "objects"):
        number, key = _list(entry, 2, f"object '{name}'")
        index.objects[name] = (_file(number, names), _text(key, f"object '{name}'"))
    if "paths" in document:
        index.paths = {name: tuple(_path(name, keys)) for name, keys in _items(document, "paths")}
    return index


def _tensor(name: str, entry: Mapping[str, Any], names: list[str]) -> StoredTensor:
    dtype = _text(entry.get("dtype"), f"dtype of '{name}'")
    if dtype not in _core.DTYPES:
        raise _Wrong(f"tensor '{name}' has the unknown type '{dtype}'")
    result = StoredTensor(dtype, _numbers(entry.get("shape"), f"shape of '{name}'"))
    chunks = entry.get("chunks")
    if not isinstance(chunks, list):
        raise _Wrong(f"the chunks of '{name}' are no list")
    for chunk in chunks:
        if not isinstance(chunk, list) or len(chunk) not in (3, 4):
            raise _Wrong(f"a chunk of '{name}' is {chunk!r:.60}")
        begin, size = _numbers(chunk[1], f"a chunk of '{name}'"), _numbers(chunk[2], f"a chunk of '{name}'")
        key = _text(chunk[3], f"a chunk of '{name}'") if len(chunk) == 4 else name
        if not fits(result.shape, begin, size):
            raise _Wrong(
                f"a chunk of '{name}' of {list(size)} from {list(begin)} on leaves its shape {list(result.shape)}"
            )
        result.chunks.append(Chunk(begin, size, _file(chunk[0], names), key))
    return result


def fits(shape: tuple[int, ...], begin: tuple[int, ...], size: tuple[int, ...]) -> bool:
    """Whether a box lies inside a tensor."""
    return len(begin) == len(size) == len(shape) and all(
        first + count <= whole for first, count, whole in zip(begin, size, shape, strict=True)
    )


def _items(document: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    yield from _dict(document.get(key), f"'{key}'").items()


def _dict(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{what} is no object")
    return value


def _list(value: Any, length: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        raise _Wrong(f"{what} is no list of {length}")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{what} is no text")
    return value


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise _Wrong(f"{what} is {value!r:.40}, and no number from 0 on")
    return value


def _numbers(value: Any, what: str) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise _Wrong(f"{what} is no list")
    return tuple(_count(each, what) for each in value)


def _file_name(name: str) -> str:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise _Wrong(f"'{name}' is not the name of a file beside the index")
    return name


def _file(number: Any, names: list[str]) -> str:
    if type(number) is not int or not 0 <= number < len(names):
        raise _Wrong(f"file {number!r:.40} of {len(names)}")
    return names[number]


def _path(name: str, keys: Any) -> Iterator[str | int]:
    if not isinstance(keys, list):
        raise _Wrong(f"the path of '{name}' is no list")
    for key in keys:
        if type(key) not in (str, int):
            raise _Wrong(f"the path of '{name}' has the key {key!r:.40}")
        yield key
